package store

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Sentinels for errors.Is. The errors themselves say what was being done, and
// what to do about it.
var (
	// ErrNotFound means there is nothing there yet. It is a state, not a
	// failure: a pool has no document before its tuner writes the first.
	ErrNotFound = errors.New("not found")
	// ErrInvalid means a value that is refused; see FieldError.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means another writer was there first; see ConflictError.
	ErrConflict = errors.New("conflict")
	// ErrStopped means that an operator has switched tuning off; see
	// StoppedError.
	ErrStopped = errors.New("stopped by hand")
)

// FieldError is one value that is refused. It wraps ErrInvalid.
type FieldError struct {
	// Field is the path to the value, such as "trial.candidate"; empty for the
	// whole.
	Field string
	// Value as found, shortened.
	Value string
	// Allowed says what would have been accepted.
	Allowed string
}

// Error names the field, the value and what is allowed.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s is not allowed, want %s", e.Value, e.Allowed)
	}
	return fmt.Sprintf("%s: %s is not allowed, want %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// ConflictError is a write that does not follow what is stored. It wraps
// ErrConflict.
type ConflictError struct {
	// Stored is the revision in the store, 0 if there is no document.
	Stored int64
	// Next is the revision that was to be written.
	Next int64
}

// Error names both revisions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: revision %d does not follow stored revision %d, want %d: load the document and apply the change to it again",
		e.Next, e.Stored, e.Stored+1)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// StoppedError is an operator's kill switch: there may be a document, but the
// tuner stays away from it and the plugin returns to its static configuration.
// It wraps ErrStopped.
type StoppedError struct {
	// Where the switch is, such as the path of a file.
	Where string
	// Reason as the operator wrote it, if at all.
	Reason string
}

// Error says what to do to go on.
func (e *StoppedError) Error() string {
	reason := ""
	if e.Reason != "" {
		reason = " (" + show(e.Reason) + ")"
	}
	return fmt.Sprintf("stopped by hand%s: remove %s to go on", reason, e.Where)
}

// Unwrap returns ErrStopped.
func (e *StoppedError) Unwrap() error { return ErrStopped }

// refuse returns a FieldError; value is shown on one line, strings quoted, and
// drives no terminal.
func refuse(field string, value any, allowed string) error {
	return &FieldError{Field: field, Value: show(value), Allowed: allowed}
}

func show(value any) string {
	switch v := value.(type) {
	case string:
		return shorten(fmt.Sprintf("%q", v))
	case []byte:
		line := strings.Join(strings.Fields(strings.ToValidUTF8(string(v), "?")), " ")
		return shorten(strings.Map(plain, line))
	default:
		return shorten(fmt.Sprint(v))
	}
}

func plain(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

const shownBytes = 80

func shorten(s string) string {
	if len(s) <= shownBytes {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:shownBytes], ""), len(s))
}

// under puts field in front of the path of a FieldError.
func under(field string, err error) error {
	var fe *FieldError
	if err == nil || !errors.As(err, &fe) {
		return err
	}
	path := field
	if fe.Field != "" {
		path += "." + fe.Field
	}
	return &FieldError{Field: path, Value: fe.Value, Allowed: fe.Allowed}
}
