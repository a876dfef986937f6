package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/kvtuner/kvtuner/internal/fleet/validation"
)

// named is a file of a flag.
type named struct{ flag, path string }

// checkOutputs refuses, before any work is done, what could not be written or
// would be written over another file of the command.
func (f *calibrateFlags) checkOutputs() error {
	outputs := []named{{"out", f.fit.out}, {"report", f.fit.report}, {"resume", f.fit.resume}}
	if f.plots != "" {
		if err := os.MkdirAll(f.plots, 0o755); err != nil {
			return fmt.Errorf("--plots %s: want a folder that is there or can be made: %w", f.plots, err)
		}
		for _, name := range validation.PlotNames() {
			outputs = append(outputs, named{"plots", filepath.Join(f.plots, name)})
		}
	}
	var files []named
	for _, output := range outputs {
		if output.path == "" {
			continue
		}
		if err := checkWritable(output.path); err != nil {
			return fmt.Errorf("--%s %s: %w", output.flag, output.path, err)
		}
		files = append(files, output)
	}
	return distinct(files, named{"measurements", f.measurements}, named{"profile", f.profile})
}

// distinct refuses outputs that are each other's file, or an input's.
func distinct(outputs []named, inputs ...named) error {
	for i, a := range outputs {
		for _, b := range append(inputs, outputs[:i]...) {
			if b.path != "" && sameFile(a.path, b.path) {
				return fmt.Errorf("--%s and --%s are the same file, %s, which would be lost; name another", b.flag, a.flag, a.path)
			}
		}
	}
	return nil
}

// sameFile tells whether two paths lead to one file, which need not be there.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	return (errX == nil) == (errY == nil) && resolved(a) == resolved(b)
}

// resolved is a path without links in its folder.
func resolved(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, filepath.Base(path))
}

// replaceFile puts a whole file where path says, at the end of a link where that
// is one, or leaves what was there.
func replaceFile(path string, text []byte) error {
	return renameio.WriteFile(target(path), text, 0o644)
}

// target is where a path leads; the path itself if that is nowhere.
func target(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}

// checkWritable tries whether a file can be put, or replaced, where path says.
func checkWritable(path string) error {
	path = target(path)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("want the path of a file; this is a folder or a device")
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".kvtuner-*")
	if err != nil {
		return fmt.Errorf("want a file in a folder that is there and can be written to: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writePlots writes the document's pictures to --plots, if given.
func (f *calibrateFlags) writePlots(check validation.Check) error {
	if f.plots == "" {
		return nil
	}
	for _, p := range check.Pictures() {
		var b strings.Builder
		if err := p.WriteSVG(&b); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
		if err := replaceFile(filepath.Join(f.plots, p.Name), []byte(b.String())); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
	}
	return nil
}
