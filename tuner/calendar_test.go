package tuner

import (
	"strings"
	"testing"
	"time"
)

func TestCalendarOpen(t *testing.T) {
	night := Schedule{Zone: "Europe/Paris", Windows: []Window{{Start: "0 22 * * 1-5", Duration: 8 * time.Hour}}}
	for _, tc := range []struct {
		name string
		s    Schedule
		now  string
		want bool
	}{
		{"no windows is always", Schedule{Zone: "UTC"}, "2026-03-01T12:00:00Z", true},
		{"before", night, "2026-03-02T20:59:59Z", false}, // Monday 21:59:59 in Paris
		{"opening", night, "2026-03-02T21:00:00Z", true},
		{"past midnight", night, "2026-03-03T04:59:59Z", true},
		{"closing is outside", night, "2026-03-03T05:00:00Z", false},
		{"summer time moves with the zone", night, "2026-06-01T20:00:00Z", true},
		{"and not before", night, "2026-06-01T19:59:59Z", false},
		{"a date that does not come", Schedule{Zone: "UTC", Windows: []Window{{Start: "0 0 31 2 *", Duration: time.Hour}}}, "2026-03-01T00:10:00Z", false},
		{"Sunday does not open", night, "2026-03-01T22:00:00Z", false},
		{"the night the clocks go forward", Schedule{Zone: "Europe/Paris", Windows: []Window{{Start: "0 22 * * *", Duration: 8 * time.Hour}}}, "2026-03-29T04:30:00Z", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := newCalendar(tc.s)
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.open(now); got != tc.want {
				t.Errorf("open(%s) = %v, want %v", tc.now, got, tc.want)
			}
		})
	}
}

func TestCalendarErrors(t *testing.T) {
	for _, tc := range []struct {
		s    Schedule
		want string
	}{
		{Schedule{Zone: "Mars/Olympus"}, `schedule.zone: "Mars/Olympus"`},
		{Schedule{Zone: "UTC", Windows: []Window{{Start: "hourly", Duration: time.Hour}}}, `schedule.windows[0].start: "hourly"`},
		{Schedule{Zone: "UTC", Windows: []Window{{Start: "TZ=UTC 0 0 * * *", Duration: time.Hour}}}, "use schedule.zone"},
		{Schedule{Zone: "UTC", Windows: []Window{{Start: "0 0 * * *"}}}, "schedule.windows[0].duration: 0s"},
	} {
		if _, err := newCalendar(tc.s); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("newCalendar(%+v) = %v, want %q in it", tc.s, err, tc.want)
		}
	}
}
