package tuner

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// calendar knows when tuning may happen.
type calendar struct {
	zone    *time.Location
	windows []calendarWindow
}

type calendarWindow struct {
	opens    cron.Schedule
	duration time.Duration
}

// newCalendar parses the windows. robfig/cron serves as the parser and the
// arithmetic of daylight saving; nothing of it runs in the background.
func newCalendar(s Schedule) (*calendar, error) {
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return nil, fmt.Errorf("schedule.zone: %q is not an IANA time zone such as UTC or Europe/Paris: %w", s.Zone, err)
	}
	c := &calendar{zone: zone}
	var errs []error
	for i, w := range s.Windows {
		opens, err := parseCron(w.Start)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule.windows[%d].start: %w", i, err))
			continue
		}
		if err := between(fmt.Sprintf("schedule.windows[%d].duration", i), w.Duration, time.Minute, 7*24*time.Hour); err != nil {
			errs = append(errs, err)
			continue
		}
		c.windows = append(c.windows, calendarWindow{opens: opens, duration: w.Duration})
	}
	return c, errors.Join(errs...)
}

func parseCron(expr string) (cron.Schedule, error) {
	if strings.Contains(expr, "TZ=") {
		return nil, fmt.Errorf("%q sets a zone; use schedule.zone, which holds for all windows", expr)
	}
	s, err := cron.ParseStandard(expr)
	if err != nil {
		return nil, fmt.Errorf("%q is not a five-field cron expression such as \"0 22 * * 1-5\": %w", expr, err)
	}
	return s, nil
}

// open reports whether tuning may happen at now. A window that opened at t is
// open in [t, t+duration).
func (c *calendar) open(now time.Time) bool {
	if len(c.windows) == 0 {
		return true
	}
	now = now.In(c.zone)
	for _, w := range c.windows {
		// The zero time is a date that does not come, such as the 31st of February.
		if opened := w.opens.Next(now.Add(-w.duration)); !opened.IsZero() && !opened.After(now) {
			return true
		}
	}
	return false
}
