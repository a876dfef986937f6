package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvtuner/kvtuner/internal/lab"
)

// Names of the policies that are found in hindsight.
const (
	// BestStatic is the fixed pair with the lowest mean end-to-end time over a
	// whole run and all seeds.
	BestStatic = "best-static"
	// Oracle is the best fixed pair of each phase of a schedule; of a single
	// scenario it is BestStatic.
	Oracle = "oracle"
)

// allowedPolicies is what an error about a policy offers.
const allowedPolicies = "load, recompute, static:<tokens>+<waiting> (such as static:1024+8 or static:inf+0), best-static, tuned, adaptive, climb, oracle"

// choice is a policy of a bench: one that can be run, or one that is chosen
// among others afterwards.
type choice struct {
	name string
	run  lab.Policy // unless hindsight
}

func (c choice) hindsight() bool { return c.name == BestStatic || c.name == Oracle }

func parsePolicy(name string) (choice, error) {
	switch name {
	case BestStatic, Oracle:
		return choice{name: name}, nil
	}
	p, err := lab.ParsePolicy(name)
	if err != nil && strings.HasPrefix(name, staticPrefix) {
		return choice{}, err
	}
	if err != nil {
		return choice{}, fmt.Errorf("policy %q is not known; allowed: %s", name, allowedPolicies)
	}
	return choice{name: p.String(), run: p}, nil
}

// staticPrefix starts the name of a fixed pair.
const staticPrefix = "static:"

// pairName is a fixed pair without the word static: "1024+8".
func pairName(p lab.Policy) string { return strings.TrimPrefix(p.String(), staticPrefix) }

func parsePolicies(names []string) ([]choice, error) {
	var all []choice
	for _, name := range names {
		c, err := parsePolicy(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, c) {
			return nil, fmt.Errorf("policy %q is listed twice", name)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("policies: none given; allowed: %s", allowedPolicies)
	}
	return all, nil
}
