package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/kvtuner/kvtuner/internal/fleet/validation"
)

// writePlots writes the document's pictures to --plots, if given.
func (f *calibrateFlags) writePlots(check validation.Check) error {
	if f.plots == "" {
		return nil
	}
	if err := os.MkdirAll(f.plots, 0o755); err != nil {
		return fmt.Errorf("--plots: %w", err)
	}
	for _, p := range check.Plots() {
		var b strings.Builder
		if err := p.WriteSVG(&b); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
		if err := renameio.WriteFile(filepath.Join(f.plots, p.Name), []byte(b.String()), 0o644); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
	}
	return nil
}

// documentCommand is how the document was made, without what does not show.
func (f *calibrateFlags) documentCommand() string {
	args := []string{"kvtuner calibrate --check --format markdown"}
	add := func(flag string, value any, isDefault bool) {
		if !isDefault {
			args = append(args, fmt.Sprintf("--%s %v", flag, value))
		}
	}
	add("measurements", f.measurements, f.measurements == "")
	add("profile", f.profile, f.profile == "")
	add("reports", strings.Join(f.reports, ","), len(f.reports) == 0)
	add("seeds", f.runs.seeds, false)
	add("first-seed", f.runs.firstSeed, f.runs.firstSeed == 1)
	add("plots", f.plots, f.plots == "")
	return strings.Join(args, " ") + " > docs/fleet-model.md"
}
