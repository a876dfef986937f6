package fleet

import "math"

// FitErrors summarise a set of runs. Errors of what was not measured are 0, with
// a count of 0 beside them.
type FitErrors struct {
	Runs int `json:"runs_total"`
	// ThroughputError and TTFTError are geometric means of the relative error,
	// whichever side is larger: 0.03 is 3%.
	ThroughputError float64 `json:"throughput_geomean_error"`
	TTFTError       float64 `json:"ttft_geomean_error"`
	// ShareError is the mean absolute error of the external share in points of
	// a hundred prompt tokens, ShareWorst the largest; ShareWithin of
	// ShareTotal runs are within ShareTarget points.
	ShareError  float64 `json:"external_share_error_points"`
	ShareWorst  float64 `json:"external_share_worst_points"`
	ShareWithin int     `json:"external_share_within_5_points"`
	ShareTotal  int     `json:"external_share_total"`
	// CollapseFactor is the largest factor by which p99 TTFT is off, either way,
	// among the CollapseTotal runs published with one of at least
	// CollapseSeconds.
	CollapseFactor float64 `json:"p99_collapse_factor"`
	CollapseTotal  int     `json:"p99_collapse_total"`
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
	for _, r := range runs {
		if r.Fitted != fitted {
			continue
		}
		e.Runs++
		throughput.add(r.Simulated.RequestsPerSecond, r.Published.RequestsPerSecond)
		if p := r.Published.TTFTMeanMS; p != nil {
			ttft.add(r.Simulated.TTFTMean*1000, *p)
		}
		e.addShare(r)
		e.addTail(r)
	}
	e.ThroughputError, e.TTFTError = throughput.mean(), ttft.mean()
	if e.ShareTotal > 0 {
		e.ShareError /= float64(e.ShareTotal)
	}
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

func (e *FitErrors) addShare(r Run) {
	p := r.Published.ExternalSharePercent
	if p == nil {
		return
	}
	off := math.Abs(100*r.Simulated.ExternalPromptShare - *p)
	e.ShareTotal++
	e.ShareError += off
	e.ShareWorst = math.Max(e.ShareWorst, off)
	if off <= ShareTarget {
		e.ShareWithin++
	}
}

func (e *FitErrors) addTail(r Run) {
	p := r.Published.TTFTP99MS
	if p == nil || *p < CollapseSeconds*1000 {
		return
	}
	e.CollapseTotal++
	e.CollapseFactor = math.Max(e.CollapseFactor, math.Exp(math.Abs(logRatio(r.Simulated.TTFTP99*1000, *p))))
}

// logError is a geometric mean of relative errors.
type logError struct{ sum, n float64 }

func (e *logError) add(simulated, published float64) {
	e.sum += math.Abs(logRatio(simulated, published))
	e.n++
}

func (e logError) mean() float64 {
	if e.n == 0 {
		return 0
	}
	return math.Expm1(e.sum / e.n)
}
