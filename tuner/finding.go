package tuner

// Level says how much a finding matters.
type Level string

const (
	// Fine needs nothing to be done.
	Fine Level = "ok"
	// Skipped could not be looked at, because of another finding.
	Skipped Level = "skipped"
	// Warning lets the tuner work, but not well.
	Warning Level = "warning"
	// Failure keeps the tuner from working, or makes it work on the wrong thing.
	Failure Level = "error"
)

// Finding is what a look at a set-up has shown.
type Finding struct {
	// Check is its name, Level how much it matters.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Found says what is so, in a sentence with the values in it.
	Found string `json:"found"`
	// Setting to change and what to do; empty if nothing.
	Setting string `json:"setting,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// Preflight has the status show findings about the pool. It may be called from
// any goroutine; the slice belongs to the tuner from then on.
func (t *Tuner) Preflight(findings []Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Preflight = findings
}
