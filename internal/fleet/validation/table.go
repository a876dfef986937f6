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
	fmt.Fprintf(t, "Profile %s, runs of %v, %d seeds; measured / simulated\n", c.Profile.Name, c.Duration, len(c.Seeds))
	all := halves(c.part(true), c.part(false))
	for _, h := range all {
		fmt.Fprintf(t, "\n%s\n", h.Name)
		fmt.Fprint(t, "report\tprefix\tstreams\tpolicy\trequests/s\toff\tspread\tTTFT s\toff\tp99 s\texternal %\t\n")
		for _, r := range h.Rows {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Report, r.PrefixTokens, r.Concurrency, r.Policy,
				both(r.Throughput, 1, 2), r.Throughput.off(1), percent(r.ThroughputSpread, 1),
				both(r.TTFT, 1, 3), r.TTFT.off(0), both(r.Tail, 1, 2), both(r.Share, 100, 1))
		}
	}
	for _, h := range all {
		fmt.Fprintf(t, "\n%s: throughput %s, mean TTFT %s (geometric mean errors), external share %s, p99 under collapse %s, orderings %s\n", h.Name,
			figure(h.ThroughputError), figure(h.TTFTError), h.shareWords(), h.collapseWords(), h.OrderingWords())
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
		return "none collapsed"
	}
	return fmt.Sprintf("within a factor of %.2f (%d runs)", p.CollapseFactor, p.CollapseTotal)
}

// OrderingWords count the pairs of policies that come out as measured.
func (p part) OrderingWords() string {
	if p.OrderingsTotal == 0 {
		return "none to compare"
	}
	return fmt.Sprintf("%d of %d", p.OrderingsRight, p.OrderingsTotal)
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
