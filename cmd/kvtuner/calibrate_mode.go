package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// What a calibration does.
const (
	modeCheck    = "--check"
	modeGuideLLM = "--from-guidellm"
	modeFit      = "--out"
)

// modesOf tells what the flags of a calibration belong to; those not named
// belong to a check and to a fit.
var modesOf = map[string]string{
	"format": modeCheck, "plots": modeCheck,
	"report": modeFit, "resume": modeFit, "free": modeFit, "seed": modeFit, "fit-seeds": modeFit, "evaluations": modeFit, "step": modeFit,
	"policy": modeGuideLLM, "name": modeGuideLLM, "prefix-tokens": modeGuideLLM,
}

// mode is the one thing that was asked for; a flag that has nothing to say about
// it is an error.
func (f *calibrateFlags) mode(flags *pflag.FlagSet) (string, error) {
	var asked []string
	for mode, given := range map[string]bool{modeCheck: f.check, modeGuideLLM: flags.Changed("from-guidellm"), modeFit: flags.Changed("out")} {
		if given {
			asked = append(asked, mode)
		}
	}
	slices.Sort(asked)
	switch len(asked) {
	case 0:
		return "", errors.New("nothing to do: give --check, --out FILE to fit, or --from-guidellm FILES")
	case 1:
		return asked[0], f.belong(flags, asked[0])
	}
	return "", fmt.Errorf("%s exclude each other: a check, a fit and a conversion are commands of their own", strings.Join(asked, " and "))
}

// belong checks that every flag given is one of the mode.
func (f *calibrateFlags) belong(flags *pflag.FlagSet, mode string) (err error) {
	refuse := func(name, why string) {
		if err == nil {
			err = fmt.Errorf("--%s has no effect %s", name, why)
		}
	}
	flags.Visit(func(flag *pflag.Flag) {
		of, only := modesOf[flag.Name]
		switch own := "--"+flag.Name == mode || flag.Name == "check"; {
		case own:
		case only && of != mode:
			refuse(flag.Name, fmt.Sprintf("with %s; it belongs to %s", mode, of))
		case !only && mode == modeGuideLLM:
			refuse(flag.Name, fmt.Sprintf("with %s; it belongs to %s and %s", mode, modeCheck, modeFit))
		case flag.Name == "plots" && f.format.value != "markdown":
			refuse(flag.Name, "without --format markdown, which shows the plots")
		case mode == modeFit && f.fit.report == "" && (flag.Name == "seeds" || flag.Name == "first-seed"):
			refuse(flag.Name, "without --report; the seeds of the search are --fit-seeds")
		}
	})
	return err
}
