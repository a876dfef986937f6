package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

func readDocument(ctx context.Context, p *probe) {
	d, err := p.Documents.Load(ctx)
	switch broken := p.unwritable("store"); {
	case errors.Is(err, store.ErrNotFound) && broken == nil:
		p.fine("there is no document yet; modes propose and enforce write the first from %s", p.Settings.Initial)
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		p.fail(remedy{"store", "repair the document or remove it; it is never overwritten unread"}, "%v", err)
	case broken == nil:
		p.fine("revision %d, %s, written %s", d.Revision, d.Baseline, d.UpdatedAt.UTC().Format(time.RFC3339))
	}
	if broken := p.unwritable("store"); broken != nil && p.Settings.Mode != tuner.Observe {
		p.fail(remedy{"store", "put the document where this user can create files; a mounted ConfigMap is read-only"}, "%v", broken)
	} else if broken != nil {
		p.fine("mode observe only reads it; another mode needs it writable, and so does a pause: %v", broken)
	}
}

func (p *probe) unwritable(setting string) error {
	if p.Writable == nil {
		return nil
	}
	return p.Writable()[setting]
}

// learned is what is read of the tuner's checkpoint.
type learned struct {
	Revision  int64        `json:"revision"`
	Incumbent store.Params `json:"incumbent"`
}

func readCheckpoint(ctx context.Context, p *probe) {
	raw, err := p.Documents.LoadCheckpoint(ctx)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(raw) == 0 {
		p.fine("nothing was learned yet")
		return
	}
	var l learned
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	remove := remedy{"store", "remove the checkpoint beside the document to start the search afresh"}
	if err != nil {
		p.fail(remove, "the checkpoint cannot be read: %v", err)
		return
	}
	d, err := p.Documents.Load(ctx)
	switch {
	case err != nil:
		p.skip("there is no document to compare with")
	case l.Revision > d.Revision:
		p.warn(remedy{"store", "if that was on purpose there is nothing to do; replicas that have seen the newer one refuse this"}, "the tuner had written revision %d, the document has only %d: it was restored from an older copy", l.Revision, d.Revision)
	case l.Incumbent != d.Baseline:
		p.warn(remedy{"store", "if someone set it on purpose there is nothing to do: it is respected, and what was learned against another incumbent is forgotten"}, "the tuner's incumbent was %s, the document has %s", l.Incumbent, d.Baseline)
	default:
		p.fine("of revision %d", l.Revision)
	}
}

// driftsAnHour that are no human's.
const driftsAnHour = 2

func countOwners(ctx context.Context, p *probe) {
	// Standbys are not ready. An observer beside the tuner writes nothing, and takes
	// whatever that writes for drift.
	observers := fmt.Sprintf(`unless ignoring(mode, kind) kvtuner_mode{pool=%q,mode="observe"}`, p.Settings.Name)
	rows, ok := p.ask(ctx, "(kvtuner_ready{pool=%q} == 1) %s", p.Settings.Name, observers)
	if !ok {
		return
	}
	drifts, ok := p.number(ctx, `sum(increase(kvtuner_decisions_total{pool=%q,kind="drift"}[1h]) %s)`, p.Settings.Name, observers)
	one := remedy{"pools", "let one tuner own the pool: stop the other, or give it a name and a document of its own"}
	switch tuners := len(rows); {
	case !ok:
	case tuners > 1:
		p.fail(one, "%d tuners run for pool %q: %s", tuners, p.Settings.Name, some(values(rows, instanceLabel(rows))))
	case drifts > driftsAnHour:
		p.warn(one, "someone else has written the document %.0f times in the last hour", drifts)
	case tuners == 0:
		p.skip("no tuner of this pool that may write is scraped; have Prometheus scrape kvtuner's /metrics for its dashboards and alerts")
	default:
		p.fine("one tuner may write")
	}
}

func instanceLabel(rows model.Vector) model.LabelName {
	if label := distinct(rows, []string{"pod", "instance"}); label != "" {
		return model.LabelName(label)
	}
	return "instance"
}

func writeHistory(_ context.Context, p *probe) {
	if err := p.unwritable("history.path"); err != nil {
		p.fail(remedy{"history.path", "put the database where this user can create files: without a record nothing is published"}, "%v", err)
		return
	}
	p.fine("it can")
}

func openSchedule(_ context.Context, p *probe) {
	s := p.Settings
	at, ok := s.Opens(p.at)
	pair := 2 * s.Trial.Block
	switch {
	case !ok:
		p.fail(remedy{"schedule.windows", "correct the cron expressions: no window opens within a year"}, "the schedule never opens")
	case tooShort(s, pair):
		p.warn(remedy{"schedule.windows", "lengthen the windows: a trial begins only if a pair of blocks still fits"}, "no window lasts %v, two blocks of %v", pair, s.Trial.Block)
	case at.After(p.at):
		p.fine("opens next at %s", at.UTC().Format("2006-01-02 15:04 UTC"))
	default:
		p.fine("open")
	}
}

func tooShort(s tuner.Settings, pair time.Duration) bool {
	for _, w := range s.Schedule.Windows {
		if w.Duration > pair {
			return false
		}
	}
	return len(s.Schedule.Windows) > 0
}

func sayMode(_ context.Context, p *probe) {
	switch p.Settings.Mode {
	case tuner.Observe:
		p.fine("observe: the loop decides and explains, and publishes nothing")
	case tuner.Propose:
		p.fine("propose: each trial waits for an approval")
	default:
		p.fine("%s: trials and moves are published, within %s", p.Settings.Mode, boundsWords(p.Settings.Bounds))
	}
}

func boundsWords(b store.Bounds) string {
	return store.Params{MinExternalReusableTokens: b.MinExternalReusableTokens.Min, MaxWaitingRequests: b.MaxWaitingRequests.Min}.String() +
		" to " + store.Params{MinExternalReusableTokens: b.MinExternalReusableTokens.Max, MaxWaitingRequests: b.MaxWaitingRequests.Max}.String()
}

// takeSample asks as the loop does: what it would be blind to is said here, too.
func takeSample(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	s := tuner.Look(ctx, p.Prometheus, p.QueryTimeout, p.Settings, p.at.Add(-p.Settings.SampleLength()), p.at)
	switch {
	case s.State == tuner.Unknown:
		p.fail(remedy{"", "see the findings above; the loop says the same until it is mended"}, "the last window is unknown: %s", brief(s.Why))
	case s.Plugin.State != tuner.OK:
		p.fail(remedy{"", "see the findings above; the loop says the same until it is mended"}, "the plugin's part of the last window is unknown: %s", brief(s.Plugin.Why))
	case s.State == tuner.Idle:
		p.fine("idle: nothing in flight")
	default:
		p.fine("%.0f requests, mean end-to-end %.2f s", s.Signals.Requests, s.Signals.MeanE2E())
	}
}
