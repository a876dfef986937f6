package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	loads      = Decision{Action: Load, Reason: ReasonReusable}
	recomputes = Decision{Action: Recompute, Reason: ReasonBelowMinimum}
	preserves  = Decision{Action: Load, Reason: ReasonPreserved}
	failsOpen  = Decision{Action: Load, Reason: ReasonNoEvidence}
	noOffload  = Decision{Action: Load, Reason: ReasonPreserved, DisableOffload: true}
	neither    = Decision{Action: Recompute, Reason: ReasonDisabled, DisableOffload: true}
)

type object = map[string]any

func TestMutate(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, tt := range []struct {
		name   string
		d      Decision
		params any // of kv_transfer_params; absent is none
		want   any // unchanged is nothing changed
	}{
		{"recompute, absent", recomputes, absent, object{"max_load_tokens": zero}},
		{"recompute, null", recomputes, nil, object{"max_load_tokens": zero}},
		{"recompute, nil map", recomputes, object(nil), object{"max_load_tokens": zero}},
		{"recompute, empty", recomputes, object{}, object{"max_load_tokens": zero}},
		{"recompute, others kept", recomputes, object{"remote_engine_id": "e", "max_offload_tokens": 64}, object{"remote_engine_id": "e", "max_offload_tokens": 64, "max_load_tokens": zero}},
		{"recompute, limit of the client", recomputes, object{"max_load_tokens": json.Number("512")}, object{"max_load_tokens": zero}},
		{"recompute, null limit", recomputes, object{"max_load_tokens": nil}, object{"max_load_tokens": zero}},
		{"recompute, limit of a type that is no number", recomputes, object{"max_load_tokens": "0"}, object{"max_load_tokens": zero}},
		{"recompute, 0 already", recomputes, object{"max_load_tokens": 0}, unchanged},
		{"recompute, int64 0 already", recomputes, object{"max_load_tokens": int64(0)}, unchanged},
		{"recompute, float 0 already", recomputes, object{"max_load_tokens": 0.0}, unchanged},
		{"recompute, number 0 already", recomputes, object{"max_load_tokens": json.Number("0")}, unchanged},
		{"recompute, other spelling of 0", recomputes, object{"max_load_tokens": json.Number("-0.0e5")}, unchanged},
		{"recompute, raw 0 already", recomputes, object{"max_load_tokens": raw(" 0")}, unchanged},
		{"recompute, raw string", recomputes, object{"max_load_tokens": raw(`"0"`)}, object{"max_load_tokens": zero}},
		{"load, absent", loads, absent, unchanged},
		{"load, null", loads, nil, unchanged},
		{"load, no limit", loads, object{"remote_engine_id": "e"}, unchanged},
		{"load, limit removed", loads, object{"max_load_tokens": 0, "remote_engine_id": "e"}, object{"remote_engine_id": "e"}},
		{"load, null limit removed", loads, object{"max_load_tokens": nil}, object{}},
		{"preserve keeps the client's limit", preserves, object{"max_load_tokens": 0}, unchanged},
		{"no evidence keeps the client's limit", failsOpen, object{"max_load_tokens": 0}, unchanged},
		{"preserve does not look", preserves, "text", unchanged},
		{"offload, absent", noOffload, absent, object{"max_offload_tokens": zero}},
		{"offload, load kept", noOffload, object{"max_load_tokens": 7}, object{"max_load_tokens": 7, "max_offload_tokens": zero}},
		{"offload, 0 already", noOffload, object{"max_offload_tokens": 0}, unchanged},
		{"neither, absent", neither, absent, object{"max_load_tokens": zero, "max_offload_tokens": zero}},
		{"neither, one there", neither, object{"max_load_tokens": 0}, object{"max_load_tokens": 0, "max_offload_tokens": zero}},

		{"raw, nil", recomputes, json.RawMessage(nil), object{"max_load_tokens": zero}},
		{"raw, null", recomputes, raw(" null\n"), object{"max_load_tokens": zero}},
		{"raw, null, load", loads, raw("null"), unchanged},
		{"raw, empty", recomputes, raw("{}"), raw(`{"max_load_tokens":0}`)},
		{"raw, blank", recomputes, raw("{ }"), raw(`{ "max_load_tokens":0}`)},
		{"raw, bytes kept", recomputes, raw(`{ "seed" : 9007199254740993, "x":"<\u003c" }`), raw(`{ "seed" : 9007199254740993, "x":"<\u003c" ,"max_load_tokens":0}`)},
		{"raw, value replaced", recomputes, raw(`{"a":1.0, "max_load_tokens" : 512 , "b":{}}`), raw(`{"a":1.0, "max_load_tokens" : 0 , "b":{}}`)},
		{"raw, value in a string", recomputes, raw(`{"max_load_tokens":"0"}`), raw(`{"max_load_tokens":0}`)},
		{"raw, object replaced", recomputes, raw(`{"max_load_tokens":{"max_load_tokens":0}}`), raw(`{"max_load_tokens":0}`)},
		{"raw, 0 already", recomputes, raw(`{"max_load_tokens": 0.0}`), unchanged},
		{"raw, escaped name", recomputes, raw(`{"max\u005fload_tokens":5}`), raw(`{"max\u005fload_tokens":0}`)},
		{"raw, name deeper down", recomputes, raw(`{"x":{"max_load_tokens":5}}`), raw(`{"x":{"max_load_tokens":5},"max_load_tokens":0}`)},
		{"raw, first removed", loads, raw(`{"max_load_tokens":0 , "a":1}`), raw(`{ "a":1}`)},
		{"raw, middle removed", loads, raw(`{"a":1,"max_load_tokens":[1,2],"b":2}`), raw(`{"a":1,"b":2}`)},
		{"raw, last removed", loads, raw(`{"a":1, "max_load_tokens":0 }`), raw(`{"a":1 }`)},
		{"raw, only one removed", loads, raw(`{"max_load_tokens":"a,b}"}`), raw(`{}`)},
		{"raw, nothing to remove", loads, raw(`{"a":1,"a":2}`), unchanged},
		{"raw, both", neither, raw(`{"max_offload_tokens":9}`), raw(`{"max_offload_tokens":0,"max_load_tokens":0}`)},
		{"raw, one of both", neither, raw(`{"max_load_tokens":0}`), raw(`{"max_load_tokens":0,"max_offload_tokens":0}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body, before := bodyOf(tt.params), bodyOf(tt.params)
			changed, err := tt.d.Mutate(body)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == unchanged {
				if diff := cmp.Diff(before, body); diff != "" || changed {
					t.Errorf("changed is %v (-want +got):\n%s", changed, diff)
				}
				return
			}
			if diff := cmp.Diff(bodyOf(tt.want), body); diff != "" || !changed {
				t.Errorf("changed is %v (-want +got):\n%s", changed, diff)
			}
			if again, err := tt.d.Mutate(body); again || err != nil {
				t.Errorf("a second time: changed is %v, %v", again, err)
			}
		})
	}
}

type marker string

const (
	absent    marker = "absent"
	unchanged marker = "unchanged"
)

// bodyOf is a body with its own copy of params as kv_transfer_params.
func bodyOf(params any) object {
	body := object{"model": "m", "seed": json.Number("9007199254740993")}
	switch p := params.(type) {
	case marker:
	case object:
		body[fieldParams] = maps.Clone(p)
	case json.RawMessage:
		body[fieldParams] = json.RawMessage(bytes.Clone(p))
	default:
		body[fieldParams] = p
	}
	return body
}

func TestMutateLeavesWhatItCannotEdit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params any
		reason string
	}{
		{"string", "x", bodyString},
		{"number", json.Number("1"), bodyNumber},
		{"float", 1.5, bodyNumber},
		{"boolean", false, bodyBool},
		{"array", []any{object{"max_load_tokens": 0}}, bodyArray},
		{"map of another type", map[string]string{"a": "b"}, bodyOther},
		{"raw string", json.RawMessage(`"x"`), bodyString},
		{"raw number", json.RawMessage(`1`), bodyNumber},
		{"raw huge number", json.RawMessage(`1e999`), bodyNumber},
		{"raw boolean", json.RawMessage(`true`), bodyBool},
		{"raw array", json.RawMessage(`[{}]`), bodyArray},
		{"raw, empty", json.RawMessage{}, bodyMalformed},
		{"raw, cut short", json.RawMessage(`{"a":1`), bodyMalformed},
		{"raw, two values", json.RawMessage(`{} {}`), bodyMalformed},
		{"raw, load twice", json.RawMessage(`{"max_load_tokens":0,"max_load_tokens":9}`), bodyDuplicate},
		{"raw, load twice, once escaped", json.RawMessage(`{"max_load_tokens":0,"max_load_token\u0073":9}`), bodyDuplicate},
		{"raw, offload twice", json.RawMessage(`{"max_offload_tokens":0,"max_offload_tokens":9}`), bodyDuplicate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, reg := newPolicy(t, Config{LoadPolicy: Disable, OffloadPolicy: Disable})
			body := bodyOf(tt.params)
			changed, err := p.Decide(request("", "a", 1)).Mutate(body)
			var bad *BodyError
			if changed || !errors.Is(err, ErrBody) || !errors.As(err, &bad) || bad.Reason != tt.reason {
				t.Fatalf("changed is %v, error %v, want one of reason %s", changed, err, tt.reason)
			}
			if diff := cmp.Diff(bodyOf(tt.params), body); diff != "" {
				t.Errorf("body changed (-want +got):\n%s", diff)
			}
			if got := value1(t, reg, "selective_kv_bodies_refused_total", "reason", tt.reason); got != 1 {
				t.Errorf("%v counted, want 1", got)
			}
		})
	}
	if changed, err := recomputes.Mutate(nil); changed || !errors.Is(err, ErrBody) {
		t.Errorf("no body: %v, %v, want an error", changed, err)
	}
	if changed, err := loads.Mutate(nil); changed || err != nil {
		t.Errorf("no body, nothing to do: %v, %v", changed, err)
	}
}

func TestLoadTiers(t *testing.T) {
	for name, tt := range map[string]struct {
		params any
		want   []string
	}{
		"no parameters":         {absent, nil},
		"parameters of a type":  {"x", nil},
		"absent":                {object{}, nil},
		"null":                  {object{"kv_load_tiers": nil}, nil},
		"names":                 {object{"kv_load_tiers": []any{"CPU", "nvme"}}, []string{"cpu", "nvme"}},
		"strings":               {object{"kv_load_tiers": []string{"CPU"}}, []string{"cpu"}},
		"none":                  {object{"kv_load_tiers": []any{}}, []string{}},
		"matchers":              {object{"kv_load_tiers": []any{object{"medium": "STORAGE", "locality": "LOCAL"}}}, []string{"storage"}},
		"matcher of a locality": {object{"kv_load_tiers": []any{"cpu", object{"locality": "LOCAL"}}}, nil},
		"number among names":    {object{"kv_load_tiers": []any{"cpu", 1}}, nil},
		"no list":               {object{"kv_load_tiers": "cpu"}, nil},
		"raw":                   {json.RawMessage(`{"kv_load_tiers":["CPU"]}`), []string{"cpu"}},
		"without end":           {object{"kv_load_tiers": slices.Repeat([]any{"cpu"}, 1_000_000)}, slices.Repeat([]string{"cpu"}, maxLoadTiers)},
		"raw, none":             {json.RawMessage(`{"kv_load_tiers":[]}`), []string{}},
		"raw, null":             {json.RawMessage(`{"kv_load_tiers":null}`), nil},
		"raw, absent":           {json.RawMessage(`{}`), nil},
		"raw, matchers":         {json.RawMessage(`{"kv_load_tiers":[{"medium":"CPU"}]}`), []string{"cpu"}},
		"raw, twice":            {json.RawMessage(`{"kv_load_tiers":["CPU"],"kv_load_tiers":["NVMe"]}`), []string{"nvme"}},
		"raw, no object":        {json.RawMessage(`"kv_load_tiers"`), nil},
		"raw, malformed":        {json.RawMessage(`{`), nil},
		"raw list in a map":     {object{"kv_load_tiers": json.RawMessage(`["CPU"]`)}, []string{"cpu"}},
		"raw name in a list":    {object{"kv_load_tiers": json.RawMessage(`"CPU"`)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, LoadTiers(bodyOf(tt.params))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzMutate holds the two forms of kv_transfer_params against each other and
// against a plain statement of what is to happen.
func FuzzMutate(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1,"max_load_tokens":0,"b":[1,{"max_load_tokens":2}]}`, `{"max_load_tokens":5}`, `{"max_load_tokens":"0"}`,
		`{"max_offload_tokens":-0.0 , "x":"}\"{,"}`, `null`, `[]`, `"s"`, `1e400`, `{"a":1,"a":2}`, `{"max_load_tokens":1,"max_load_tokens":2}`,
		`{"max\u005fload_tokens":1}`, "{\"\xff\":1}", `{"kv_load_tiers":["cpu"]}`,
	} {
		for d := range byte(5) {
			f.Add([]byte(seed), d)
		}
	}
	f.Fuzz(func(t *testing.T, params []byte, pick byte) {
		d := []Decision{loads, recomputes, preserves, noOffload, neither}[pick%5]
		body := object{fieldParams: json.RawMessage(bytes.Clone(params))}
		changed, err := d.Mutate(body)
		after, _ := body[fieldParams].(json.RawMessage)
		if err != nil || !changed {
			if after == nil || !bytes.Equal(after, params) || changed {
				t.Fatalf("changed is %v, error %v, body %q became %v", changed, err, params, body)
			}
		}
		if err != nil {
			if d == preserves {
				t.Fatalf("nothing to do, but error %v", err)
			}
			return
		}
		if bytes.Equal(bytes.TrimSpace(params), []byte("null")) || !json.Valid(params) || len(members(params)) == 0 && !changed {
			return
		}
		want := reference(members(params), d)
		if diff := cmp.Diff(want, members(after)); diff != "" {
			t.Fatalf("%+v: %q became %q (-want +got):\n%s", d, params, after, diff)
		}
		if changed == cmp.Equal(members(params), members(after)) {
			t.Fatalf("changed is %v, but %q became %q", changed, params, after)
		}
		checkMapForm(t, d, params, after, changed)
	})
}

// pair is a member of an object, its value as it is spelt.
type pair struct{ Name, Value string }

// members lists the members of a valid object in order.
func members(raw []byte) []pair {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, _ := d.Token(); t != json.Delim('{') {
		return nil
	}
	list := []pair{}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		list = append(list, pair{name.(string), string(value)})
	}
	return list
}

// reference says what is to become of the members.
func reference(list []pair, d Decision) []pair {
	out := []pair{}
	has := map[string]bool{}
	for _, m := range list {
		var value any
		_ = json.Unmarshal([]byte(m.Value), &value)
		n, isNumber := value.(float64)
		sets := m.Name == fieldMaxLoad && d.Action == Recompute || m.Name == fieldMaxOffload && d.DisableOffload
		switch {
		case m.Name == fieldMaxLoad && d == loads:
			continue
		case sets && !(isNumber && n == 0):
			m.Value = "0"
		}
		has[m.Name] = true
		out = append(out, m)
	}
	if d.Action == Recompute && !has[fieldMaxLoad] {
		out = append(out, pair{fieldMaxLoad, "0"})
	}
	if d.DisableOffload && !has[fieldMaxOffload] {
		out = append(out, pair{fieldMaxOffload, "0"})
	}
	return out
}

// checkMapForm edits the same object as a decoded map and compares.
func checkMapForm(t *testing.T, d Decision, params, after []byte, changed bool) {
	t.Helper()
	m := decode(t, params)
	if len(m) != len(members(params)) {
		return // a name twice, or names that are not UTF-8
	}
	mapChanged, err := d.Mutate(object{fieldParams: m})
	if diff := cmp.Diff(decode(t, after), m); diff != "" || mapChanged != changed || err != nil {
		t.Fatalf("as a map: changed is %v, %v (-raw +map):\n%s", mapChanged, err, diff)
	}
}

func decode(t *testing.T, raw []byte) (m object) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%q does not parse: %v", raw, err)
	}
	return m
}

func TestBodyErrorSaysWhatToDo(t *testing.T) {
	_, err := recomputes.Mutate(object{fieldParams: "x"})
	if err == nil || !strings.Contains(err.Error(), "kv_transfer_params is a string, want a JSON object, null or nothing") {
		t.Error(err)
	}
}
