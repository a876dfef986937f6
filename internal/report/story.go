package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/internal/lab"
)

// Story is one fleet's day under several policies.
type Story struct {
	Title string
	// Intro says in a few sentences what happens.
	Intro  string
	Seed   uint64
	Phases []Phase
	// Tuned is the run under the tuner, Reference the one that all are compared
	// with; both are drawn. Others are in the tables only.
	Tuned, Reference Run
	Others           []Run
}

// Phase of a story.
type Phase struct {
	Name string
	// Note says what is different from now on.
	Note string
	// Strained phases are tinted: storage is slow.
	Strained bool
	Duration time.Duration
}

// Run is a policy and what it led to.
type Run struct {
	Policy  string
	Outcome lab.Outcome
}

// runs in the order of the tables.
func (s Story) runs() []Run { return append([]Run{s.Tuned, s.Reference}, s.Others...) }

func (s Story) total() time.Duration {
	var d time.Duration
	for _, p := range s.Phases {
		d += p.Duration
	}
	return d
}

// validate holds every run to the phases.
func (s Story) validate() error {
	if len(s.Phases) == 0 {
		return errors.New("report: there are no phases")
	}
	for _, r := range s.runs() {
		if len(r.Outcome.Phases) != len(s.Phases) {
			return fmt.Errorf("report: the run of %s has %d phases, the story %d", r.Policy, len(r.Outcome.Phases), len(s.Phases))
		}
		if got, want := len(r.Outcome.Seconds), int(s.total()/time.Second); got != want {
			return fmt.Errorf("report: the run of %s has %d seconds, the story %d", r.Policy, got, want)
		}
	}
	return nil
}
