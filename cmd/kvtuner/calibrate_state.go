package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/google/renameio/v2"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// fitState is a search on disk: the losses it has found, in order, which are
// all it takes to go on exactly as it would have.
type fitState struct {
	Version int `json:"version"`
	// Search identifies profile, measurements and options.
	Search string    `json:"search"`
	Losses []float64 `json:"losses"`

	path string // empty keeps no state
}

// errOtherState refuses a file that would lead the search astray.
var errOtherState = errors.New("the file is of another search; name another file, or repeat the options it was begun with")

// openFitState reads the state of a search, or begins one where there is no
// file.
func openFitState(path string, o fleet.FitOptions) (*fitState, error) {
	search, err := identify(o)
	if err != nil {
		return nil, err
	}
	begun := &fitState{Version: 1, Search: search, path: path}
	if path == "" {
		return begun, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return begun, nil
	}
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	s := &fitState{path: path}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("is not the state of a search: %w", err)
	}
	if s.Version != begun.Version || s.Search != begun.Search {
		return nil, errOtherState
	}
	return s, nil
}

// add writes a new loss out, so that a kill at any moment loses at most the
// evaluation under way.
func (s *fitState) add(p fleet.FitProgress) error {
	if s.path == "" || p.Known {
		return nil
	}
	s.Losses = append(s.Losses, p.Loss)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return renameio.WriteFile(s.path, text, 0o644)
}

// identify is a digest of everything that a loss depends on, and of the search's
// way.
func identify(o fleet.FitOptions) (string, error) {
	h := sha256.New()
	if err := fleet.WriteProfile(h, o.Compare.Profile); err != nil {
		return "", err
	}
	if err := fleet.WriteMeasurements(h, o.Compare.Measurements); err != nil {
		return "", err
	}
	err := json.NewEncoder(h).Encode([]any{o.Compare.Seeds, o.Compare.Duration, o.Compare.Base, o.Free, o.Seed, o.Step})
	return hex.EncodeToString(h.Sum(nil)), err
}
