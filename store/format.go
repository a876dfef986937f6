package store

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Format returns the document as indented JSON with times in UTC and a newline
// at the end. Equal documents give equal bytes, and Parse reads them back. A
// document that is not valid is refused.
func Format(d *Document) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("format parameter document: %w", err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d.inUTC()); err != nil {
		return nil, fmt.Errorf("format parameter document: %w", err)
	}
	return out.Bytes(), nil
}

// inUTC returns a copy whose times are in UTC.
func (d *Document) inUTC() *Document {
	c := d.Clone()
	c.UpdatedAt = c.UpdatedAt.UTC()
	if c.Trial != nil {
		c.Trial.StartedAt = c.Trial.StartedAt.UTC()
		c.Trial.ExpiresAt = c.Trial.ExpiresAt.UTC()
	}
	if c.Costs != nil {
		c.Costs.FittedAt = c.Costs.FittedAt.UTC()
		c.Costs.ExpiresAt = c.Costs.ExpiresAt.UTC()
	}
	return c
}
