package fleet

import (
	"encoding/json"
	"math"
)

// Figure is a number that is NaN, in JSON null, where nothing was measured.
type Figure float64

// Known tells that something was measured.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// MarshalJSON writes null for what is not known.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// FitErrors summarise a set of runs. A Figure of what was not measured is NaN.
type FitErrors struct {
	Runs int `json:"runs_total"`
	// ThroughputError and TTFTError are geometric means of the relative error,
	// whichever side is larger: 0.03 is 3%.
	ThroughputError Figure `json:"throughput_geomean_error"`
	TTFTError       Figure `json:"ttft_geomean_error"`
	// ShareError is the mean absolute error of the external share in points of
	// a hundred prompt tokens, ShareWorst the largest; ShareWithin of
	// ShareTotal runs are within ShareTarget points.
	ShareError  Figure `json:"external_share_error_points"`
	ShareWorst  Figure `json:"external_share_worst_points"`
	ShareWithin int    `json:"external_share_within_5_points"`
	ShareTotal  int    `json:"external_share_total"`
	// CollapseFactor is the largest factor by which p99 TTFT is off, either way,
	// among the CollapseTotal runs published with one of at least
	// CollapseSeconds.
	CollapseFactor Figure `json:"p99_collapse_factor"`
	CollapseTotal  int    `json:"p99_collapse_total"`
	// OrderingsRight of OrderingsTotal pairs of policies in a cell of a report
	// come out as published. Pairs of two thresholds are not counted. A
	// published difference under 1.5% is a tie, met by one under 3%.
	OrderingsRight int `json:"orderings_right"`
	OrderingsTotal int `json:"orderings_total"`
}

const (
	// ShareTarget is the error of the external share that is aimed for, points.
	ShareTarget = 5.0
	// CollapseSeconds is the p99 TTFT from which a run counts as collapsed.
	CollapseSeconds = 10.0
)

func fitErrors(runs []Run, fitted bool) FitErrors {
	var e FitErrors
	var throughput, ttft logError
	var share, tail worst
	for _, r := range runs {
		if r.Fitted != fitted {
			continue
		}
		e.Runs++
		throughput.add(r.Simulated.RequestsPerSecond, r.Published.RequestsPerSecond)
		if p := r.Published.TTFTMeanMS; p != nil {
			ttft.add(r.Simulated.TTFTMean*1000, *p)
		}
		if p := r.Published.ExternalSharePercent; p != nil {
			share.add(math.Abs(100*r.Simulated.ExternalPromptShare - *p))
		}
		if p := r.Published.TTFTP99MS; p != nil && *p >= CollapseSeconds*1000 {
			tail.add(math.Exp(math.Abs(logRatio(r.Simulated.TTFTP99*1000, *p))))
		}
	}
	e.ThroughputError, e.TTFTError = throughput.mean(), ttft.mean()
	e.ShareError, e.ShareWorst, e.ShareWithin, e.ShareTotal = share.mean(), share.most(), share.within, share.n
	e.CollapseFactor, e.CollapseTotal = tail.most(), tail.n
	for _, o := range orderings(runs) {
		if o.Fitted != fitted {
			continue
		}
		e.OrderingsTotal++
		if o.Right {
			e.OrderingsRight++
		}
	}
	return e
}

// worst keeps the mean and the largest of errors, and how many are within
// ShareTarget.
type worst struct {
	n, within    int
	sum, largest float64
}

func (w *worst) add(off float64) {
	w.n++
	w.sum += off
	w.largest = math.Max(w.largest, off)
	if off <= ShareTarget {
		w.within++
	}
}

func (w worst) mean() Figure { return Figure(w.sum / float64(w.n)) } // 0/0 is NaN

func (w worst) most() Figure {
	if w.n == 0 {
		return Figure(math.NaN())
	}
	return Figure(w.largest)
}

// logError is a geometric mean of relative errors.
type logError struct{ sum, n float64 }

func (e *logError) add(simulated, published float64) {
	e.sum += math.Abs(logRatio(simulated, published))
	e.n++
}

func (e logError) mean() Figure { return Figure(math.Expm1(e.sum / e.n)) } // 0/0 is NaN
