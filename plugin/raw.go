package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// isNull says whether raw JSON stands for null; encoding/json writes a nil
// RawMessage so.
func isNull(raw json.RawMessage) bool {
	return raw == nil || string(bytes.TrimSpace(raw)) == "null"
}

// editRaw edits a raw JSON object and keeps all bytes it need not change. It
// returns a new object, or nil if nothing changed or raw is refused.
func editRaw(raw json.RawMessage, load, offload edit) (json.RawMessage, *BodyError) {
	if bad := checkRaw(raw); bad != nil {
		return nil, bad
	}
	loaded, bad := editMember(raw, fieldMaxLoad, load)
	if bad != nil {
		return nil, bad
	}
	offloaded, bad := editMember(orRaw(loaded, raw), fieldMaxOffload, offload)
	if bad != nil {
		return nil, bad
	}
	return orRaw(offloaded, loaded), nil
}

func orRaw(a, b json.RawMessage) json.RawMessage {
	if a == nil {
		return b
	}
	return a
}

// checkRaw refuses what is not one JSON object.
func checkRaw(raw json.RawMessage) *BodyError {
	if !json.Valid(raw) {
		return &BodyError{Reason: bodyMalformed, Detail: "malformed JSON"}
	}
	switch bytes.TrimSpace(raw)[0] {
	case '{':
		return nil
	case '"':
		return unexpected("")
	case '[':
		return unexpected([]any{})
	case 't', 'f':
		return unexpected(false)
	default:
		return unexpected(zero)
	}
}

// editMember edits one member of a valid raw object; nil if nothing changed.
func editMember(raw json.RawMessage, name string, e edit) (json.RawMessage, *BodyError) {
	if e == keep {
		return nil, nil
	}
	m, found, bad := locate(raw, name)
	switch {
	case bad != nil:
		return nil, bad
	case e == set && !found:
		return insert(raw, name), nil
	case e == set && !isZero(raw[m.value:m.end]):
		return splice(raw, m.value, m.end, zero.String()), nil
	case e == remove && found:
		return splice(raw, m.start, m.next, ""), nil
	default:
		return nil, nil
	}
}

// member is where a member of an object lies in its bytes.
type member struct {
	value, end int // of the value
	// start and next are what to cut out, the comma that parts it from its
	// neighbour included.
	start, next int
}

// locate finds the member called name in a valid raw object, which may be there
// once: a parser would take either of two.
func locate(raw json.RawMessage, name string) (m member, found bool, bad *BodyError) {
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	first := int(d.InputOffset())
	for err == nil && d.More() {
		before := int(d.InputOffset())
		var key json.Token
		var value json.RawMessage
		if key, err = d.Token(); err != nil {
			break
		}
		if err = d.Decode(&value); err != nil || key != name {
			continue
		}
		if found {
			return member{}, false, &BodyError{Reason: bodyDuplicate, Detail: fmt.Sprintf("an object with %s twice", name)}
		}
		found = true
		end := int(d.InputOffset())
		m = member{value: end - len(value), end: end, start: before, next: end}
		if before == first && d.More() {
			m.next = end + 1 + bytes.IndexByte(raw[end:], ',')
		}
	}
	if err != nil {
		return member{}, false, &BodyError{Reason: bodyMalformed, Detail: "malformed JSON"}
	}
	return m, found, nil
}

func splice(raw json.RawMessage, from, to int, with string) json.RawMessage {
	return slices.Concat(raw[:from], json.RawMessage(with), raw[to:])
}

// insert adds a member of value 0 at the end of a valid raw object.
func insert(raw json.RawMessage, name string) json.RawMessage {
	end := bytes.LastIndexByte(raw, '}')
	comma := ","
	if bytes.TrimSpace(raw[:end])[len(bytes.TrimSpace(raw[:end]))-1] == '{' {
		comma = ""
	}
	return splice(raw, end, end, fmt.Sprintf(`%s%q:%s`, comma, name, zero))
}
