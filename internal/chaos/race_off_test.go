//go:build !race

package chaos

const (
	schedules = 200
	whole     = true
)
