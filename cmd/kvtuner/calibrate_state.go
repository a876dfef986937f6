package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
func openFitState(ctx context.Context, path string, o fleet.FitOptions) (*fitState, error) {
	search, err := identify(o)
	if err != nil {
		return nil, err
	}
	begun := &fitState{Version: 1, Search: search, path: path}
	if path == "" {
		return begun, nil
	}
	s, err := fromFile(ctx, path, maxStateFile, readFitState)
	if errors.Is(err, os.ErrNotExist) {
		return begun, nil
	}
	if err != nil {
		return nil, err
	}
	s.path = path
	if s.Version != begun.Version || s.Search != begun.Search {
		return nil, errOtherState
	}
	return s, nil
}

func readFitState(r io.Reader) (*fitState, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	s := &fitState{}
	err := d.Decode(s)
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	if err == nil && d.More() {
		err = errors.New("it goes on after its JSON object")
	}
	if err == nil && slices.ContainsFunc(s.Losses, func(v float64) bool { return !(v >= 0) }) {
		err = errors.New("a loss is below 0")
	}
	if err != nil {
		return nil, fmt.Errorf("the file is not the state of a search: %w; name another file, or remove it to begin anew", err)
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
	return replaceFile(s.path, text)
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
