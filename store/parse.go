package store

import (
	"fmt"
	"time"
)

// MaxDocumentBytes is the largest document that Parse reads.
const MaxDocumentBytes = 1 << 20

// Parse reads one document and validates it. It is strict: a field that is
// unknown, missing, repeated, null or of another type, or bytes after the
// document, are refused. Errors name the field, its value and what is allowed,
// and wrap ErrInvalid.
func Parse(raw []byte) (*Document, error) {
	d, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("parse parameter document: %w", err)
	}
	return d, nil
}

func parse(raw []byte) (*Document, error) {
	if len(raw) > MaxDocumentBytes {
		return nil, refuse("", fmt.Sprintf("document of %d bytes", len(raw)), fmt.Sprintf("at most %d bytes", MaxDocumentBytes))
	}
	o := readObject(raw)
	d := &Document{}
	// The version comes first: what follows is this version's schema.
	o.require("apiVersion", readString(&d.APIVersion))
	if o.err == nil && d.APIVersion != APIVersion {
		return nil, d.Validate()
	}
	o.require("pool", readString(&d.Pool))
	o.require("revision", readInt(&d.Revision))
	o.require("updatedAt", readTime(&d.UpdatedAt))
	o.require("baseline", d.Baseline.read)
	o.allow("trial", func(raw []byte) error {
		d.Trial = &Trial{}
		return d.Trial.read(raw)
	})
	o.allow("costs", func(raw []byte) error {
		d.Costs = &Costs{}
		return d.Costs.read(raw)
	})
	if err := o.close(); err != nil {
		return nil, err
	}
	return d, d.Validate()
}

func (p *Params) read(raw []byte) error {
	o := readObject(raw)
	o.require(fieldTokens, p.MinExternalReusableTokens.UnmarshalJSON)
	o.require(fieldWaiting, readInt(&p.MaxWaitingRequests))
	o.allow(fieldPolicy, p.LoadPolicy.read)
	return o.close()
}

// read takes the name of Threshold, too, which has no spelling of its own in
// what is written.
func (l *LoadPolicy) read(raw []byte) error {
	var name string
	if err := into(&name, allowedPolicy)(raw); err != nil {
		return err
	}
	if name != Threshold.String() && name != string(Adaptive) {
		return refuse("", name, allowedPolicy)
	}
	if *l = Adaptive; name == Threshold.String() {
		*l = Threshold
	}
	return nil
}

func (t *Trial) read(raw []byte) error {
	o := readObject(raw)
	o.require("id", readString(&t.ID))
	o.require("candidate", t.Candidate.read)
	o.require("assignment", t.Assignment.read)
	o.require("startedAt", readTime(&t.StartedAt))
	o.require("expiresAt", readTime(&t.ExpiresAt))
	return o.close()
}

func (a *Assignment) read(raw []byte) error {
	o := readObject(raw)
	o.require("mode", readString((*string)(&a.Mode)))
	o.allow("share", readFloat(&a.Share))
	o.allow("seed", readInt(&a.Seed))
	o.allow("swapped", readBool(&a.Swapped))
	return o.close()
}

func readString(to *string) func([]byte) error { return into(to, "a string") }

func readFloat(to *float64) func([]byte) error { return into(to, "a number") }

func readBool(to *bool) func([]byte) error { return into(to, "true or false") }

func readInt[T int | int64 | uint64](to *T) func([]byte) error {
	return into(to, "a whole number in range")
}

func readTime(to *time.Time) func([]byte) error {
	read := into(to, allowedTime)
	return func(raw []byte) error {
		err := read(raw)
		*to = to.UTC()
		return err
	}
}
