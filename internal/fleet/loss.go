package fleet

import "math"

// Tolerances are the errors that cost one unit in the loss: about what two
// published runs of one setting differ by.
const (
	throughputTolerance = 0.02 // relative
	ttftTolerance       = 0.12 // relative
	tailTolerance       = 0.40 // relative, p99
	shareTolerance      = 0.04 // absolute, of prompt tokens
	readTolerance       = 0.05 // absolute, GiB/s
	orderMargin         = 0.01 // by which an ordering should be right
)

// Loss is what calibration minimises: the mean over the runs of robust squared
// errors of throughput, mean TTFT, p99 TTFT, external share and mechanism, plus
// a penalty for policies in the wrong order.
func (c Comparison) Loss() float64 {
	sum := 0.0
	for _, r := range c.Runs {
		sum += r.loss()
	}
	for a, b := range pairs(c.Runs) {
		sum += orderLoss(b, a)
	}
	return sum / float64(len(c.Runs))
}

func (r Run) loss() float64 {
	p, s := r.Published, r.Simulated
	sum := robust(logRatio(s.RequestsPerSecond, p.RequestsPerSecond) / throughputTolerance)
	if p.TTFTMeanMS != nil {
		sum += 0.5 * robust(logRatio(s.TTFTMean*1000, *p.TTFTMeanMS)/ttftTolerance)
	}
	if p.TTFTP99MS != nil {
		sum += 0.2 * robust(logRatio(s.TTFTP99*1000, *p.TTFTP99MS)/tailTolerance)
	}
	if p.ExternalSharePercent != nil {
		sum += 0.5 * robust(difference(s.ExternalPromptShare, *p.ExternalSharePercent/100)/shareTolerance)
	}
	if m := p.Mechanism; m != nil {
		sum += 0.2 * robust(difference(s.GPUHitShare, m.GPUHitSharePercent/100)/shareTolerance)
		sum += 0.2 * robust((s.NVMeReadGiBps-m.ReadGiBps)/readTolerance)
		sum += 0.1 * robust(logRatio(s.NVMeWriteGiBps, m.WriteGiBps)/ttftTolerance)
		sum += 0.2 * robust(logRatio(s.LookupMean, m.LookupMean)/tailTolerance)
		sum += 0.2 * robust(logRatio(s.LookupP90, m.LookupP90)/tailTolerance)
	}
	return sum
}

func orderLoss(a, b *Run) float64 {
	published := logRatio(a.Published.RequestsPerSecond, b.Published.RequestsPerSecond)
	simulated := logRatio(a.Simulated.RequestsPerSecond, b.Simulated.RequestsPerSecond)
	if math.Abs(published) < tieBand {
		return robust(math.Max(0, math.Abs(simulated)-tieBand) / throughputTolerance)
	}
	return robust(math.Max(0, orderMargin-math.Copysign(simulated, published*simulated)) / throughputTolerance)
}

// logRatio is about the relative error; a run that finished nothing, of which a
// quantity is 0 or no number, is far off.
func logRatio(simulated, published float64) float64 {
	const far = 10
	switch {
	case !(simulated > 0):
		return -far
	case !(published > 0):
		return far
	}
	return math.Log(simulated / published)
}

// difference of two shares; a run that finished nothing is far off.
func difference(simulated, published float64) float64 {
	if math.IsNaN(simulated) {
		return 1
	}
	return simulated - published
}

// robust is quadratic near 0 and linear far away (pseudo-Huber).
func robust(x float64) float64 { return 2 * (math.Sqrt(1+x*x) - 1) }
