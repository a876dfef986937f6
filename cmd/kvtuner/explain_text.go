package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// explain writes a decision for reading: the reason first, then ever finer what
// it rests on.
func explain(w io.Writer, d store.Decision) {
	fmt.Fprintf(w, "%s: %s\n\n", d.Kind, oneLine(d.Reason))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "  %s\t%s\n", name, value) }
	row("decision", d.ID)
	row("pool", d.Pool)
	row("time", stamp(d.Time))
	row("mode", modeWords(d.Mode))
	if d.Actor != "" {
		row("commanded by", d.Actor)
	}
	row("revision", revisionWords(d))
	if d.Trial != "" {
		row("trial", d.Trial)
	}
	if d.From != (store.Params{}) {
		row("from", paramsWords(d.From))
	}
	row("to", toWords(d))
	t.Flush()
	if d.Evidence == nil {
		fmt.Fprintln(w, "\n"+withoutEvidence(d.Kind))
		return
	}
	explainEvidence(w, *d.Evidence)
	explainQueries(w, d)
}

// withoutEvidence says where to look for it.
func withoutEvidence(k store.Kind) string {
	if k == store.KindApprove || k == store.KindReject {
		return "What it answers has the measurements: kvtuner history --kind propose"
	}
	return "No measurements were needed for this decision."
}

func explainEvidence(w io.Writer, e store.Evidence) {
	explainEffect(w, e)
	explainArms(w, e.Arms)
	chartSamples(w, e.Samples)
	explainSamples(w, e.Samples)
	explainCurves(w, e.Curves)
	if len(e.Alternatives) > 0 {
		fmt.Fprintln(w, "\nOther candidates considered")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, a := range e.Alternatives {
			fmt.Fprintf(t, "  %s\t%s\n", a.Params, oneLine(a.Why))
		}
		t.Flush()
	}
}

// explainCurves shows what restoring and recomputing cost when the decision was
// taken.
func explainCurves(w io.Writer, curves []store.CurveBucket) {
	if len(curves) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCost of a request by reusable tokens: restoring adds to its TTFT, recomputing delays all")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  from tokens\trequests\trestore\tstd. error\trecompute")
	for _, b := range curves {
		restore, spread := "not seen", ""
		if b.RestoreSeconds != nil && b.StandardError != nil {
			restore, spread = number(*b.RestoreSeconds)+" s", number(*b.StandardError)+" s"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s s\n", number(b.Reusable), number(b.Requests), restore, spread, number(b.RecomputeSeconds))
	}
	t.Flush()
}

// explainQueries gives what is to be pasted into Prometheus, with the evaluation
// time to set there. They stay as they are, white space included.
func explainQueries(w io.Writer, d store.Decision) {
	if len(d.Evidence.Queries) == 0 {
		return
	}
	fmt.Fprintf(w, "\nQueries as sent to Prometheus, evaluated at %s\n", d.Time.UTC().Format(time.RFC3339))
	for _, q := range d.Evidence.Queries {
		fmt.Fprintln(w, "  "+q)
	}
}

func revisionWords(d store.Decision) string {
	if d.Revision == 0 {
		return "none: this decision published nothing"
	}
	return fmt.Sprintf("%d was published", d.Revision)
}

func toWords(d store.Decision) string {
	if d.From == d.To {
		return "the same"
	}
	return paramsWords(d.To)
}

func explainEffect(w io.Writer, e store.Evidence) {
	if e.Verdict == "" && e.Effect == nil {
		return
	}
	fmt.Fprintf(w, "\nEffect of the candidate: %s\n", e.Verdict)
	if e.Effect != nil {
		fmt.Fprintln(w, "  "+effectWords(*e.Effect))
		fmt.Fprintln(w, "  "+intervalChart(*e.Effect))
	}
}

// explainArms sets the arms side by side, a signal a row.
func explainArms(w io.Writer, arms []store.ArmSummary) {
	if len(arms) == 0 {
		return
	}
	fmt.Fprintln(w, "\nArms, over the samples that were judged")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	armRow(t, arms, "signal", "unit", func(a store.ArmSummary) string { return fmt.Sprintf("%s %s", a.Arm, a.Params) })
	armRow(t, arms, "samples", "", func(a store.ArmSummary) string { return fmt.Sprint(a.Samples) })
	armRow(t, arms, "requests", "", func(a store.ArmSummary) string { return number(a.Requests) })
	for _, name := range armSignals(arms) {
		armRow(t, arms, name, unit(name), func(a store.ArmSummary) string {
			v, ok := a.Signals[name]
			if !ok {
				return "unknown"
			}
			return value(name, v)
		})
	}
	t.Flush()
}

func armRow(w io.Writer, arms []store.ArmSummary, name, unit string, cell func(store.ArmSummary) string) {
	fmt.Fprintf(w, "  %s\t%s", name, unit)
	for _, a := range arms {
		fmt.Fprintf(w, "\t%s", cell(a))
	}
	fmt.Fprintln(w)
}

// armSignals are the signals that any arm has, but for the requests, which have a
// row of their own.
func armSignals(arms []store.ArmSummary) []string {
	var names []string
	for _, a := range arms {
		for name := range a.Signals {
			if name != "requests" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return signalOrder(names)
}

// explainSamples says why samples could not be used, and how often.
func explainSamples(w io.Writer, samples []store.Sample) {
	count := map[string]int{}
	var order []string
	for _, s := range samples {
		if s.State == store.StateOK {
			continue
		}
		why := stateWords(s.State, oneLine(s.Why))
		if count[why]++; count[why] == 1 {
			order = append(order, why)
		}
	}
	for _, why := range order {
		fmt.Fprintf(w, "  %d sample(s) %s\n", count[why], why)
	}
}
