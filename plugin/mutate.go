package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Fields of a request's body.
const (
	fieldParams     = "kv_transfer_params"
	fieldMaxLoad    = "max_load_tokens"
	fieldMaxOffload = "max_offload_tokens"
	fieldLoadTiers  = "kv_load_tiers"
)

// zero is what a limit of no tokens is written as.
const zero = json.Number("0")

// ErrBody means a request body that cannot be edited without losing something
// the client wrote. See BodyError.
var ErrBody = errors.New("request body left as it is")

// BodyError says why a body was left as it is. It wraps ErrBody.
type BodyError struct {
	// Reason is one of a closed set, as in the metric's label.
	Reason string
	// Detail says what was found.
	Detail string
}

// Error says what was found and what would have been accepted.
func (e *BodyError) Error() string {
	return fmt.Sprintf("%v: %s is %s, want a JSON object, null or nothing", ErrBody, fieldParams, e.Detail)
}

// Unwrap returns ErrBody.
func (e *BodyError) Unwrap() error { return ErrBody }

// Reasons of BodyError.
const (
	bodyString    = "string"
	bodyNumber    = "number"
	bodyBool      = "bool"
	bodyArray     = "array"
	bodyOther     = "other"
	bodyMalformed = "malformed"
	bodyDuplicate = "duplicate"
	bodyNone      = "no_body"
)

var bodyReasons = []string{bodyString, bodyNumber, bodyBool, bodyArray, bodyOther, bodyMalformed, bodyDuplicate, bodyNone}

// Mutate writes the decision into a request's body and says whether the body
// changed. It touches nothing but max_load_tokens and max_offload_tokens in
// kv_transfer_params: recomputing sets the first to 0, loading removes it, and
// where the client's setting stands it is left alone; the second is set to 0 if
// offload is disabled. A value that is 0 already keeps its spelling.
//
// kv_transfer_params may be a map or a json.RawMessage, of which all other bytes
// are kept; if it is absent or null it is created when needed. Anything else,
// and raw JSON that is malformed or has one of the two fields twice, is a
// BodyError, and the body stays as it is.
//
// Without a change it does not allocate.
func (d Decision) Mutate(body map[string]any) (changed bool, err error) {
	load, offload := d.edits()
	if load == keep && offload == keep {
		return false, nil
	}
	changed, bad := mutate(body, load, offload)
	if bad != nil {
		d.metrics.bodyRefused(bad.Reason)
		return false, bad
	}
	return changed, nil
}

// edit is what is to be done to one field.
type edit uint8

const (
	keep edit = iota
	remove
	set // to zero
)

func (d Decision) edits() (load, offload edit) {
	switch {
	case d.Action == Recompute:
		load = set
	case !d.Reason.keepsClient():
		load = remove
	}
	if d.DisableOffload {
		offload = set
	}
	return load, offload
}

func mutate(body map[string]any, load, offload edit) (changed bool, bad *BodyError) {
	switch params := body[fieldParams].(type) {
	case nil:
		return create(body, load, offload)
	case map[string]any:
		if params == nil {
			return create(body, load, offload)
		}
		loaded := editMap(params, fieldMaxLoad, load)
		return editMap(params, fieldMaxOffload, offload) || loaded, nil
	case json.RawMessage:
		if isNull(params) {
			return create(body, load, offload)
		}
		edited, bad := editRaw(params, load, offload)
		if edited == nil {
			return false, bad
		}
		body[fieldParams] = edited
		return true, nil
	default:
		return false, unexpected(params)
	}
}

// create adds kv_transfer_params if there is something to set.
func create(body map[string]any, load, offload edit) (bool, *BodyError) {
	if load != set && offload != set {
		return false, nil
	}
	if body == nil {
		return false, &BodyError{Reason: bodyNone, Detail: "of a request without a body"}
	}
	params := make(map[string]any, 2)
	editMap(params, fieldMaxLoad, load)
	editMap(params, fieldMaxOffload, offload)
	body[fieldParams] = params
	return true, nil
}

func editMap(params map[string]any, name string, e edit) bool {
	value, found := params[name]
	switch {
	case e == set && !(found && isZero(value)):
		params[name] = zero
		return true
	case e == remove && found:
		delete(params, name)
		return true
	default:
		return false
	}
}

// isZero recognises 0 in every type a JSON number is decoded to.
func isZero(value any) bool {
	switch v := value.(type) {
	case json.Number:
		return isZeroNumber(string(v))
	case json.RawMessage:
		return isZeroNumber(string(bytes.TrimSpace(v)))
	case float64:
		return v == 0
	case int:
		return v == 0
	case int64:
		return v == 0
	default:
		return false
	}
}

func isZeroNumber(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	return err == nil && f == 0
}

// unexpected names the JSON type of a value that is neither object nor null.
func unexpected(value any) *BodyError {
	switch value.(type) {
	case string:
		return &BodyError{Reason: bodyString, Detail: "a string"}
	case json.Number, float64, int, int64:
		return &BodyError{Reason: bodyNumber, Detail: "a number"}
	case bool:
		return &BodyError{Reason: bodyBool, Detail: "a boolean"}
	case []any:
		return &BodyError{Reason: bodyArray, Detail: "an array"}
	default:
		return &BodyError{Reason: bodyOther, Detail: fmt.Sprintf("a %T", value)}
	}
}
