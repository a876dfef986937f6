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
	case e == set && !isZeroNumber(string(raw[m.value:m.end])):
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

// locate finds the member called name in a valid raw object: the last, and an
// error, if there are several. It does not allocate unless names are escaped.
func locate(raw json.RawMessage, name string) (m member, found bool, bad *BodyError) {
	i := bytes.IndexByte(raw, '{') + 1
	for i = skipSpace(raw, i); raw[i] != '}'; {
		key := skipSpace(raw, i)
		colon := skipSpace(raw, skipValue(raw, key))
		value := skipSpace(raw, colon+1)
		end := skipValue(raw, value)
		next := skipSpace(raw, end)
		if isName(raw[key:skipValue(raw, key)], name) {
			if found {
				bad = &BodyError{Reason: bodyDuplicate, Detail: fmt.Sprintf("an object with %s twice", name)}
			}
			found, m = true, cut(raw, i, value, end, next)
		}
		i = next
		if raw[i] == ',' {
			i++
		}
	}
	return m, found, bad
}

// cut is the member from i, which follows a brace or a comma, to next, which is
// a brace or a comma.
func cut(raw json.RawMessage, i, value, end, next int) member {
	m := member{value: value, end: end, start: i, next: end}
	switch {
	case raw[next] == ',':
		m.next = next + 1
	case raw[i-1] == ',':
		m.start = i - 1
	}
	return m
}

func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	var unquoted string
	return json.Unmarshal(quoted, &unquoted) == nil && unquoted == name
}

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns the end of the valid value that starts at i.
func skipValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		return skipNested(raw, i)
	default:
		return i + bytes.IndexAny(raw[i:], ",:]} \t\n\r")
	}
}

func skipString(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipNested(raw []byte, i int) int {
	for depth := 0; ; {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
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
