//go:build race

package chaos

// schedules of the short campaign. Within one nothing runs at the same time, so
// that a few show what the race detector can find; each takes ten times as long.
const schedules = 5

// whole says whether to run what needs many schedules.
const whole = false
