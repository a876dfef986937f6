package validation

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// WriteTable writes both halves as text.
func (c Check) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "Profile %s, %d seeds of %v each; published / simulated\n", c.Profile.Name, len(c.Seeds), c.Duration)
	for _, half := range []struct {
		name   string
		fitted bool
	}{{"fitted", true}, {"held out", false}} {
		p := c.part(half.fitted)
		if len(p.Rows) == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s\n", half.name)
		fmt.Fprint(t, "report\tprefix\tstreams\tpolicy\trequests/s\toff\tspread\tTTFT s\toff\tp99 s\texternal %\t\n")
		for _, r := range p.Rows {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%+.1f%%\t%s\t%s\t%+.0f%%\t%s\t%s\t\n", r.Report, r.PrefixTokens, r.Concurrency, r.Policy,
				both(r.Throughput, 1, 2), 100*r.Throughput.Off(), percent(r.ThroughputSpread, 1),
				both(r.TTFT, 1, 3), 100*r.TTFT.Off(), both(r.Tail, 1, 2), both(r.Share, 100, 1))
		}
	}
	for _, half := range []struct {
		name   string
		fitted bool
	}{{"fitted", true}, {"held out", false}} {
		p := c.part(half.fitted)
		if len(p.Rows) > 0 {
			fmt.Fprintf(t, "\n%s: throughput %.1f%%, mean TTFT %.1f%% (geometric mean errors), external share %s, p99 under collapse %s, orderings %d of %d\n", half.name,
				100*p.ThroughputError, 100*p.TTFTError, p.shareWords(), p.collapseWords(), p.OrderingsRight, p.OrderingsTotal)
		}
	}
	return t.Flush()
}

func (p part) shareWords() string {
	if p.ShareTotal == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.1f points (worst %.1f, %d of %d within 5)", p.ShareError, p.ShareWorst, p.ShareWithin, p.ShareTotal)
}

func (p part) collapseWords() string {
	if p.CollapseTotal == 0 {
		return "not measured"
	}
	return fmt.Sprintf("within a factor of %.2f (%d runs)", p.CollapseFactor, p.CollapseTotal)
}

// both is "published / simulated" with so many decimals, a dash for neither.
func both(p pair, scale float64, decimals int) string {
	if p.Published == nil && p.Simulated == nil {
		return "-"
	}
	return number(p.Published, scale, decimals) + " / " + number(p.Simulated, scale, decimals)
}

func number(v *float64, scale float64, decimals int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, *v*scale)
}

// percent of a share; a dash if it is not known.
func percent(v *float64, decimals int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f%%", decimals, math.Abs(*v)*100)
}
