package store

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Costs are what restoring and recomputing have cost the requests of a pool
// lately. With LoadPolicy Adaptive, a request with n reusable tokens routed to
// an engine that runs r others is restored if
//
//	Restores[bucket of n].Seconds < SecondsPerToken * n * (1 + Crowding * r)
//
// both sides being seconds, and the left one corrected by what restores on that
// engine have cost since.
type Costs struct {
	// FittedAt is the end of the window they were fitted to.
	FittedAt time.Time `json:"fittedAt"`
	// ExpiresAt is when every reader drops them by itself: after FittedAt, and at
	// most MaxLease after Document.UpdatedAt.
	ExpiresAt time.Time `json:"expiresAt"`
	// BaseSeconds is the TTFT of a request with nothing to compute, 0 or more;
	// SecondsPerToken what each computed token adds, above 0.
	BaseSeconds     float64 `json:"baseSeconds"`
	SecondsPerToken float64 `json:"secondsPerToken"`
	// Crowding is the share of its own time, 0 to 1, by which a recompute delays
	// each request running beside it.
	Crowding float64 `json:"crowding"`
	// Restores are by reusable tokens, ascending. A bucket that is not there is
	// not known.
	Restores []RestoreCost `json:"restores,omitempty"`
}

// RestoreCost is what restoring adds to the TTFT of a request whose reusable
// tokens lie between Reusable and twice as many.
type RestoreCost struct {
	// Reusable is the lower end of the bucket: a power of two from 64 to 65536,
	// of which the last has no upper end.
	Reusable int `json:"reusable"`
	// Seconds, and their standard error, 0 or more.
	Seconds       float64 `json:"seconds"`
	StandardError float64 `json:"standardError"`
	// Requests that were restored in the window, 0 or more: 0 if the bucket was
	// judged by others.
	Requests int `json:"requests"`
}

// Ends of RestoreCost.Reusable.
const (
	minRestoreBucket = 64
	maxRestoreBucket = 65536
)

// maxSeconds bounds every cost: a day.
const maxSeconds = 86400

func (c *Costs) equal(other *Costs) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.FittedAt.Equal(other.FittedAt) && c.ExpiresAt.Equal(other.ExpiresAt) &&
		c.BaseSeconds == other.BaseSeconds && c.SecondsPerToken == other.SecondsPerToken && c.Crowding == other.Crowding &&
		slices.Equal(c.Restores, other.Restores)
}

func (c *Costs) read(raw []byte) error {
	o := readObject(raw)
	o.require("fittedAt", readTime(&c.FittedAt))
	o.require("expiresAt", readTime(&c.ExpiresAt))
	o.require("baseSeconds", readFloat(&c.BaseSeconds))
	o.require("secondsPerToken", readFloat(&c.SecondsPerToken))
	o.require("crowding", readFloat(&c.Crowding))
	o.allow("restores", c.readRestores)
	return o.close()
}

func (c *Costs) readRestores(raw []byte) error {
	var all []json.RawMessage
	if err := into(&all, "a list")(raw); err != nil {
		return err
	}
	c.Restores = make([]RestoreCost, len(all))
	for i, one := range all {
		if err := c.Restores[i].read(one); err != nil {
			return under(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

func (r *RestoreCost) read(raw []byte) error {
	o := readObject(raw)
	o.require("reusable", readInt(&r.Reusable))
	o.require("seconds", readFloat(&r.Seconds))
	o.require("standardError", readFloat(&r.StandardError))
	o.require("requests", readInt(&r.Requests))
	return o.close()
}

func (c *Costs) validate(updatedAt time.Time) error {
	if err := validateTime("fittedAt", c.FittedAt); err != nil {
		return err
	}
	if err := validateTime("expiresAt", c.ExpiresAt); err != nil {
		return err
	}
	if err := validateLease("fittedAt", c.FittedAt, c.ExpiresAt, updatedAt); err != nil {
		return err
	}
	if err := validateSeconds("baseSeconds", c.BaseSeconds); err != nil {
		return err
	}
	if !(c.SecondsPerToken > 0 && c.SecondsPerToken <= maxSeconds) {
		return refuse("secondsPerToken", c.SecondsPerToken, "a number above 0, at most a day")
	}
	if !(c.Crowding >= 0 && c.Crowding <= 1) {
		return refuse("crowding", c.Crowding, "a number from 0 to 1")
	}
	return under("restores", c.validateRestores())
}

func (c *Costs) validateRestores() error {
	last := 0
	for i, r := range c.Restores {
		if err := r.validate(last); err != nil {
			return under(fmt.Sprintf("[%d]", i), err)
		}
		last = r.Reusable
	}
	return nil
}

func (r RestoreCost) validate(last int) error {
	if r.Reusable < minRestoreBucket || r.Reusable > maxRestoreBucket || r.Reusable&(r.Reusable-1) != 0 {
		return refuse("reusable", r.Reusable, fmt.Sprintf("a power of two from %d to %d", minRestoreBucket, maxRestoreBucket))
	}
	if r.Reusable <= last {
		return refuse("reusable", r.Reusable, fmt.Sprintf("more than the one before, which is %d", last))
	}
	if err := validateSeconds("seconds", r.Seconds); err != nil {
		return err
	}
	if err := validateSeconds("standardError", r.StandardError); err != nil {
		return err
	}
	if r.Requests < 0 || r.Requests > math.MaxInt32 {
		return refuse("requests", r.Requests, "a whole number of 0 or more")
	}
	return nil
}

func validateSeconds(field string, v float64) error {
	if !(v >= 0 && v <= maxSeconds) {
		return refuse(field, v, "a number of seconds from 0 to a day")
	}
	return nil
}
