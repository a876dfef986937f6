package tuner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
)

// Replay goes through a stretch of Prometheus' past as the loop would have in mode
// observe. It writes nothing, and the same data give the same report.
//
// A trial that did not happen cannot be seen afterwards: what a Replay says of
// other parameters is what the cost curves predict, never what was measured.
type Replay struct {
	Settings   Settings
	Prometheus Prometheus
	// QueryTimeout bounds each query.
	QueryTimeout time.Duration
	// From and To bound the stretch.
	From, To time.Time
	// Progress is told after each step, if not nil.
	Progress func(done, total int)
}

// maxReplaySteps bounds a Replay: about a month at 15 s.
const maxReplaySteps = 200_000

// Run goes through the stretch. It fails only if Prometheus does not answer at all
// or ctx ends: what is missing from the answers is in the report.
func (r Replay) Run(ctx context.Context) (ReplayReport, error) {
	r.Settings.Mode = Observe
	if err := r.Settings.Validate(); err != nil {
		return ReplayReport{}, err
	}
	if r.Prometheus == nil || r.QueryTimeout <= 0 {
		return ReplayReport{}, errors.New("replay: Prometheus and QueryTimeout are required")
	}
	step := r.Settings.step()
	total := int(r.To.Sub(r.From) / step)
	if total < 1 || total > maxReplaySteps {
		return ReplayReport{}, fmt.Errorf("replay from %s to %s: %d steps of %v are not allowed; 1 to %d", stamp(r.From), stamp(r.To), total, step, maxReplaySteps)
	}
	calendar, err := newCalendar(r.Settings.Schedule)
	if err != nil {
		return ReplayReport{}, err
	}
	p := newReplaying(r, calendar)
	if _, err := p.observer.query(ctx, pluginQuery(r.Settings, step), r.To); err != nil {
		return ReplayReport{}, err
	}
	for n := range total {
		p.step(ctx, r.From.Add(time.Duration(n+1)*step))
		if err := ctx.Err(); err != nil {
			return ReplayReport{}, fmt.Errorf("replay: %w", err)
		}
		if r.Progress != nil {
			r.Progress(n+1, total)
		}
	}
	return p.report(), nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// replaying is a Replay under way.
type replaying struct {
	settings Settings
	observer *observer
	calendar *calendar
	control  *controller
	past     past
	sums     replaySums
	out      ReplayReport
}

func newReplaying(r Replay, c *calendar) *replaying {
	p := &replaying{
		settings: r.Settings, calendar: c, control: newController(r.Settings, r.Settings.Initial, r.From),
		observer: &observer{prom: timed{r.Prometheus, r.QueryTimeout}, settings: r.Settings},
		past:     past{params: r.Settings.Initial},
	}
	p.out = ReplayReport{Pool: r.Settings.Name, From: r.From.UTC(), To: r.To.UTC(), StepSeconds: r.Settings.step().Seconds()}
	p.sums = newReplaySums(p.control.search.ladder.tokens)
	return p
}

func (p *replaying) step(ctx context.Context, now time.Time) {
	s := p.observer.sample(ctx, now.Add(-p.settings.step()), now)
	p.follow(s, p.look(ctx, now))
	if p.past.trial {
		p.control.note(s)
		p.measure(s, nil)
		return
	}
	pair := 2 * p.settings.Trial.Block
	a := p.control.next(observation{sample: s, open: p.calendar.open(now), room: p.calendar.open(now.Add(pair))})
	p.measure(s, a.decision)
}

// past is what was in force at a step of the past.
type past struct {
	params   store.Params
	trial    bool // somebody tried a candidate
	revision int64
}

// follow takes on what was in force, if it is another than before.
func (p *replaying) follow(s Sample, now past) {
	if s.Plugin.State != OK {
		return
	}
	now.revision = s.Plugin.Newest
	if now == p.past {
		return
	}
	c := p.control
	if now.params != p.past.params || now.trial != p.past.trial {
		c.incumbent, c.probation = now.params, nil
		c.forgetSamples()
		p.sums.suggested = nil
	}
	c.awaiting(now.revision, s.To)
	p.past = now
}

// Names of the plugin's series of what is in force.
const (
	seriesParameter = "selective_kv_parameter"
	labelArm        = "arm"
	labelName       = "name"
)

// look for the parameters that were in force: those before, if nothing says.
func (p *replaying) look(ctx context.Context, at time.Time) past {
	out := past{params: p.past.params, trial: p.past.trial}
	reach := staleAfter(p.settings.ScrapeInterval)
	rows, err := p.observer.query(ctx, rangeQuery([]string{seriesParameter}, pluginSelector(p.settings), reach), at)
	if err != nil || len(rows) == 0 {
		return out
	}
	out.trial = false
	shown := map[string]float64{}
	newest := map[model.LabelValue]model.Time{}
	for _, row := range rows {
		pod := row.Metric[model.LabelName(p.settings.ReplicaLabel)]
		newest[pod] = max(newest[pod], row.Values[len(row.Values)-1].Timestamp)
	}
	for _, row := range rows {
		last := row.Values[len(row.Values)-1]
		switch {
		case last.Timestamp < newest[row.Metric[model.LabelName(p.settings.ReplicaLabel)]]: // gone since
		case row.Metric[labelArm] == model.LabelValue(store.ArmCandidate):
			out.trial = true
		default:
			shown[string(row.Metric[labelName])] = float64(last.Value)
		}
	}
	if p, ok := ParamsShown(shown); ok {
		out.params = p
	}
	return out
}

// ParamsShown are the parameters of one arm as the plugin's gauges show them, by
// their names; ok is false if one is missing or impossible. A plugin that does not
// show a load policy knows store.Threshold only.
func ParamsShown(gauges map[string]float64) (p store.Params, ok bool) {
	tokens, hasTokens := gauges[store.NameTokens]
	waiting, hasWaiting := gauges[store.NameWaiting]
	switch {
	case !hasTokens || !hasWaiting, !(waiting >= 0 && waiting <= math.MaxInt32):
		return store.Params{}, false
	case math.IsInf(tokens, 1):
		p.MinExternalReusableTokens = store.Never
	case !(tokens >= 1 && tokens <= math.MaxInt32):
		return store.Params{}, false
	default:
		p.MinExternalReusableTokens = store.Tokens(tokens)
	}
	p.MaxWaitingRequests = int(waiting)
	if gauges[store.NameLoadPolicy] == 1 {
		p.LoadPolicy = store.Adaptive
	}
	return p, true
}

// PluginSeries selects the series in which the plugin of a pool shows its revision.
func (s Settings) PluginSeries() string {
	return fmt.Sprintf("{%s}", join(fmt.Sprintf("__name__=%q", seriesRevision), pluginSelector(s)))
}
