package store

import (
	"regexp"
	"time"
)

// namePattern is what pools and IDs may be called: safe in a file name's
// suffix, a label value, a URL and a log line.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}$`)

const (
	allowedName = "1 to 253 letters, digits, '.', '_', ':', '/' or '-', the first a letter or digit"
	allowedTime = "an RFC 3339 time in the years 1970 to 9999"
)

// Validate names the first field whose value is refused; errors wrap
// ErrInvalid.
func (d *Document) Validate() error {
	if d.APIVersion != APIVersion {
		return refuse("apiVersion", d.APIVersion, `"`+APIVersion+`"`)
	}
	if err := validateName("pool", d.Pool); err != nil {
		return err
	}
	if d.Revision < 1 {
		return refuse("revision", d.Revision, "1 or more")
	}
	if err := validateTime("updatedAt", d.UpdatedAt); err != nil {
		return err
	}
	if err := d.Baseline.Validate(); err != nil {
		return under("baseline", err)
	}
	if d.Trial != nil {
		if err := d.Trial.validate(d.UpdatedAt); err != nil {
			return under("trial", err)
		}
	}
	if d.Costs == nil {
		return nil
	}
	return under("costs", d.Costs.validate(d.UpdatedAt))
}

func (t *Trial) validate(updatedAt time.Time) error {
	if err := validateName("id", t.ID); err != nil {
		return err
	}
	if err := t.Candidate.Validate(); err != nil {
		return under("candidate", err)
	}
	if err := t.Assignment.validate(); err != nil {
		return under("assignment", err)
	}
	if err := validateTime("startedAt", t.StartedAt); err != nil {
		return err
	}
	if err := validateTime("expiresAt", t.ExpiresAt); err != nil {
		return err
	}
	return validateLease("startedAt", t.StartedAt, t.ExpiresAt, updatedAt)
}

// validateLease checks what ends by the clock: after it began, and at most
// MaxLease after the document was written.
func validateLease(from string, began, ends, updatedAt time.Time) error {
	if !ends.After(began) {
		return refuse("expiresAt", stamp(ends), "a time after "+from+", which is "+stamp(began))
	}
	if latest := updatedAt.Add(MaxLease); ends.After(latest) {
		return refuse("expiresAt", stamp(ends), "at most "+MaxLease.String()+" after updatedAt, which is "+stamp(latest))
	}
	return nil
}

func (a Assignment) validate() error {
	switch a.Mode {
	case AssignNone, AssignAll:
		return a.validateWhole()
	case AssignSubset:
		if !(a.Share > 0 && a.Share < 1) {
			return refuse("share", a.Share, "a fraction above 0 and below 1")
		}
		return nil
	default:
		return refuse("mode", string(a.Mode), `"none", "all" or "subset"`)
	}
}

// validateWhole refuses what only means something for a subset.
func (a Assignment) validateWhole() error {
	allowed := `no value with mode "` + string(a.Mode) + `"; it belongs to "subset"`
	switch {
	case a.Share != 0:
		return refuse("share", a.Share, allowed)
	case a.Seed != 0:
		return refuse("seed", a.Seed, allowed)
	case a.Swapped:
		return refuse("swapped", a.Swapped, allowed)
	default:
		return nil
	}
}

// CheckPool reports whether name can be the name of a pool.
func CheckPool(name string) error { return validateName("pool", name) }

func validateName(field, name string) error {
	if !namePattern.MatchString(name) {
		return refuse(field, name, allowedName)
	}
	return nil
}

func validateTime(field string, t time.Time) error {
	if year := t.UTC().Year(); year < 1970 || year > 9999 {
		return refuse(field, stamp(t), allowedTime)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
