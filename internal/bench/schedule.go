package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

// Schedule is a fleet's day: scenarios that follow one another without a break.
type Schedule struct {
	Name   string
	Phases []lab.Phase
}

// MaxDuration is the most virtual time of a scenario or phase.
const MaxDuration = 24 * time.Hour

// maxPhases and the duration limits keep a typing error from running for days.
const (
	maxPhases   = 200
	minDuration = time.Second
)

// ParseSchedule reads a YAML list of `- {scenario: 8k-c64, duration: 25m}`.
// Unknown keys, unknown scenarios and impossible durations are errors that name
// the phase, counted from 1.
func ParseSchedule(name string, raw []byte) (Schedule, error) {
	phases, err := decodePhases(raw)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	s := Schedule{Name: name}
	for i, p := range phases {
		phase, err := parsePhase(p)
		if err != nil {
			return Schedule{}, fmt.Errorf("schedule %s: phase %d: %w", name, i+1, err)
		}
		s.Phases = append(s.Phases, phase)
	}
	return s, nil
}

// on is the schedule's phases on another deployment.
func (s Schedule) on(p fleet.Profile) ([]lab.Phase, error) {
	var phases []lab.Phase
	for _, phase := range s.Phases {
		scenario, err := fleet.ByNameOn(p, phase.Scenario.Name)
		if err != nil {
			return nil, err
		}
		phases = append(phases, lab.Phase{Scenario: scenario, Duration: phase.Duration})
	}
	return phases, nil
}

type phaseText struct {
	Scenario string `yaml:"scenario"`
	Duration string `yaml:"duration"`
}

func decodePhases(raw []byte) ([]phaseText, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	var phases []phaseText
	if err := d.Decode(&phases); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("want a list of - {scenario: 8k-c64, duration: 25m}: %w", err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; want a single list")
	}
	if len(phases) == 0 || len(phases) > maxPhases {
		return nil, fmt.Errorf("%d phases; want 1 to %d, as a list of - {scenario: 8k-c64, duration: 25m}", len(phases), maxPhases)
	}
	return phases, nil
}

func parsePhase(p phaseText) (lab.Phase, error) {
	scenario, err := fleet.ByName(p.Scenario)
	if err != nil {
		return lab.Phase{}, err
	}
	d, err := time.ParseDuration(p.Duration)
	if err != nil {
		return lab.Phase{}, fmt.Errorf("duration %q: want a number with a unit, such as 90s, 25m or 1h", p.Duration)
	}
	return lab.Phase{Scenario: scenario, Duration: d}, checkDuration(d)
}

// checkDuration accepts whole seconds: statistics are kept per second.
func checkDuration(d time.Duration) error {
	if d < minDuration || d > MaxDuration || d%time.Second != 0 {
		return fmt.Errorf("duration %v: want whole seconds from %v to %v", d, minDuration, MaxDuration)
	}
	return nil
}
