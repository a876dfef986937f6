package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// hits tells that a fault of the kind is on, and strikes this time.
func (w *world) hits(k Kind) bool {
	for _, s := range w.active {
		if s.kind == k && (s.share >= 1 || w.rng.Float64() < s.share) {
			return true
		}
	}
	return false
}

// on tells that a fault of the kind is on.
func (w *world) on(k Kind) bool {
	return slices.ContainsFunc(w.active, func(s *strike) bool { return s.kind == k })
}

// strikeAndLift begins the faults whose time has come and ends those that are over.
func (w *world) strikeAndLift() error {
	elapsed := w.now.Sub(w.plan.start)
	var kept []fault
	for _, f := range w.waiting {
		switch {
		case f.at > elapsed, f.kind == workloadInTrial && !w.trying():
			kept = append(kept, f)
		default:
			w.trace("FAULT %s", f)
			w.watch.struck(f)
			s := &strike{fault: f, began: w.now}
			if err := w.strike(s); err != nil {
				return err
			}
			w.active = append(w.active, s)
		}
	}
	w.waiting = kept
	var on []*strike
	for _, s := range w.active {
		if w.now.Before(s.began.Add(s.last)) {
			on = append(on, s)
			continue
		}
		if err := w.lift(s); err != nil {
			return err
		}
	}
	w.active = on
	return nil
}

func (w *world) trying() bool {
	d := w.document()
	return d != nil && d.Trial != nil
}

func pickFrom[T any](f fault, from []T) T { return from[f.pick%uint64(len(from))] }

func (w *world) strike(s *strike) error {
	switch s.kind {
	case engineDark, engineRestart, engineChurn, engineLinger, promSkew:
		w.strikeEngine(s)
	case replicaDark, replicaRestart, replicaStuck, replicaSkewed, replicaAdded:
		return w.strikeReplica(s)
	case tunerKilled, tunerShutdown, tunerSecond, tunerClock, everyClock:
		w.strikeTuner(s)
	case operator:
		p := pickFrom(s.fault, w.tuners)
		return p.command(order(s.fault, p))
	case storeForeign:
		w.foreign(false)
	case storeForeignTrial:
		w.foreign(true)
	case storeEdited, storeTorn, storeCorrupt, storeOlder, storeRemoved:
		return w.tamper(s.fault)
	case checkpointCorrupt, checkpointOlder, checkpointRemoved:
		return w.tamperCheckpoint(s.fault)
	}
	return nil
}

// lift a fault: what was broken works again.
func (w *world) lift(s *strike) error {
	if s.last > 0 {
		w.trace("over: %s", s.kind)
	}
	switch s.kind {
	case engineDark:
		s.engine.dark = false
	case promSkew:
		s.engine.skew = 0
	case engineLinger:
		w.pool.engines = slices.DeleteFunc(w.pool.engines, func(e *engine) bool { return e == s.engine })
	case replicaDark:
		s.replica.dark = false
	case replicaStuck:
		s.replica.stuck = false
	case replicaAdded:
		if len(w.replicas) > 1 {
			w.replicas = slices.DeleteFunc(w.replicas, func(r *replica) bool { return r == s.replica })
		}
	case tunerSecond:
		w.watch.forgetful()
		w.tuners = slices.DeleteFunc(w.tuners, func(p *process) bool { return p == s.tuner })
		return s.tuner.journal.close()
	case storeTorn, storeCorrupt:
		return w.repair(s.fault)
	case checkpointCorrupt:
		return w.repairCheckpoint()
	}
	return nil
}

// relieve ends everything that still goes wrong, as operators do in the end.
func (w *world) relieve() error {
	w.trace("calm: everything works again")
	w.waiting = nil
	for _, s := range w.active {
		if err := w.lift(s); err != nil {
			return err
		}
	}
	w.active = nil
	for _, p := range w.tuners {
		if p.offset != w.clock {
			w.jump(p, w.clock-p.offset)
		}
		p.kill, p.stop = "", false
		p.due = earlier(p.due, w.now.Add(time.Minute))
	}
	if w.settings.Mode == tuner.Observe && w.document() == nil && len(w.watch.stored) > 0 {
		if err := w.repair(fault{pick: 1 << 8}); err != nil { // nobody else would
			return err
		}
	}
	for _, r := range w.replicas {
		r.stuck, r.dark = false, false
	}
	for _, e := range w.pool.engines {
		e.dark, e.skew = false, 0
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (w *world) strikeEngine(s *strike) {
	e := pickFrom(s.fault, w.pool.engines)
	s.engine = e
	switch s.kind {
	case engineDark:
		e.dark = true
	case promSkew:
		e.skew = time.Duration(int64(s.pick>>8%41)-20) * time.Second
	case engineRestart:
		e.counters, e.backlog = map[series]float64{}, 0
	case engineChurn:
		w.pool.engines = slices.DeleteFunc(w.pool.engines, func(x *engine) bool { return x == e })
		w.pool.join(w.now)
	case engineLinger:
		e.frozen = true
		w.pool.join(w.now)
	}
}

func (w *world) strikeReplica(s *strike) (err error) {
	r := pickFrom(s.fault, w.replicas)
	s.replica = r
	switch s.kind {
	case replicaDark:
		r.dark = true
	case replicaStuck:
		r.stuck = true
	case replicaAdded:
		s.replica, err = w.addReplica(0)
	case replicaRestart:
		return w.restart(r, 0)
	case replicaSkewed:
		return w.restart(r, s.jump())
	}
	return err
}

// restart a replica: with nothing in its memory, at times under another name.
func (w *world) restart(r *replica, skew time.Duration) error {
	name, behind := r.name, r.behind
	if w.rng.Float64() < 0.5 {
		name = r.name + "b"
	}
	fresh, err := newReplica(name, w.clock+skew, func() time.Time { return w.now })
	if err != nil {
		return err
	}
	fresh.behind, fresh.stuck, fresh.dark, fresh.baselineSince = behind, r.stuck, r.dark, w.now
	*r = *fresh
	return nil
}

func (w *world) strikeTuner(s *strike) {
	p := pickFrom(s.fault, w.tuners)
	switch s.kind {
	case tunerKilled:
		p.kill, p.down = s.point(), min(s.last, 10*time.Minute)
	case tunerShutdown:
		p.stop, p.down = true, min(s.last, 10*time.Minute)
	case tunerSecond:
		s.tuner = w.addTuner()
		w.watch.forgetful() // neither knows what the other has tried
	case tunerClock:
		w.jump(p, s.jump())
	case everyClock:
		w.clock += s.jump()
		for _, p := range w.tuners {
			w.jump(p, s.jump())
		}
	}
}

// order is what an operator says: mostly yes to a proposal, if there is one.
func order(f fault, p *process) tuner.Command {
	c := tuner.Command{Actor: "chaos", Verb: tuner.Verbs()[f.pick>>8%3]}
	if p.tuner != nil {
		if s := p.tuner.Status().Proposal; s != nil {
			c.Verb, c.Proposal = tuner.Approve, s.ID
		}
	}
	switch {
	case c.Verb == tuner.Pause:
		c.For = max(time.Minute, f.last)
	case c.Verb == tuner.Revert:
		c.Target = pickFrom(f, []tuner.Target{tuner.ToInitial, tuner.ToKnownGood})
	}
	return c
}

func (w *world) jump(p *process, by time.Duration) {
	p.offset += by
	w.watch.jumped(by)
}

// foreign writes a document as someone does who knows the revision but not what
// the tuner is up to.
func (w *world) foreign(trial bool) {
	d := w.document()
	if d == nil {
		d = &store.Document{APIVersion: store.APIVersion, Pool: poolName}
	}
	now := w.now.Add(w.clock)
	d.Revision, d.UpdatedAt, d.Trial = d.Revision+1, now, nil
	d.Baseline = w.anything()
	if trial {
		d.Trial = &store.Trial{
			ID: "foreign", Candidate: w.anything(), Assignment: store.Assignment{Mode: store.AssignAll},
			StartedAt: now, ExpiresAt: now.Add(30 * time.Minute),
		}
	}
	if err := w.medium.Swap(context.Background(), d); err != nil {
		return // over garbage nobody can write
	}
	w.foreignNow(d)
}

func (w *world) foreignNow(d *store.Document) {
	w.version++
	w.trace("someone else: revision %d: %s", d.Revision, describe(d))
	w.watch.foreign(d)
}

// anything that is valid, in bounds or not.
func (w *world) anything() store.Params {
	return store.Params{
		MinExternalReusableTokens: pick(w.rng, store.Tokens(1), 64, 777, 1024, 4096, 32768, store.Never),
		MaxWaitingRequests:        pick(w.rng, 1, 2, 5, 8, 64, store.NoGate),
	}
}

// tamper with the document behind the store's back.
func (w *world) tamper(f fault) error {
	raw, err := w.medium.content()
	if err != nil || len(raw) == 0 {
		return err
	}
	switch f.kind {
	case storeRemoved:
		raw = nil
	case storeTorn:
		raw = raw[:f.pick%uint64(len(raw))]
	case storeCorrupt:
		raw = []byte(pickFrom(f, []string{"", "{", "null", "\x00\x00\x00", `{"apiVersion":"kvtuner/v9"}`}))
	case storeOlder, storeEdited:
		return w.rewrite(f)
	}
	w.version++
	return w.medium.put(raw)
}

// rewrite puts an older document back, or edits the one that is there without a
// new revision.
func (w *world) rewrite(f fault) error {
	d := w.document()
	if d == nil {
		return nil
	}
	if f.kind == storeOlder {
		d = pickFrom(f, w.watch.stored).Clone()
		w.watch.replayed = true
	} else {
		d.Baseline = w.anything()
	}
	raw, err := store.Format(d)
	if err != nil {
		return err
	}
	if err := w.medium.put(raw); err != nil {
		return err
	}
	w.foreignNow(d)
	return nil
}

// repair a document that nobody can read: with the last good one, or by removing it.
func (w *world) repair(f fault) error {
	_, err := w.medium.Load(context.Background())
	if err == nil {
		return nil
	}
	w.version++
	if f.pick>>8%2 == 0 || len(w.watch.stored) == 0 {
		w.trace("the unreadable document is removed")
		return w.medium.put(nil)
	}
	d := w.watch.stored[len(w.watch.stored)-1]
	w.trace("the unreadable document is repaired: revision %d", d.Revision)
	raw, err := store.Format(d)
	if err != nil {
		return err
	}
	return w.medium.put(raw)
}

func (w *world) tamperCheckpoint(f fault) error {
	kept := w.watch.checkpoints
	w.watch.forgetful()
	switch {
	case f.kind == checkpointRemoved:
		return w.medium.putCheckpoint(nil)
	case f.kind == checkpointCorrupt:
		return w.medium.putCheckpoint([]byte(pickFrom(f, []string{"{", "null", `{"version":99}`, "\x00"})))
	case len(kept) > 0:
		return w.medium.putCheckpoint(pickFrom(f, kept))
	}
	return nil
}

// repairCheckpoint removes one that is still there as it was broken: tuners that
// started before have replaced it.
func (w *world) repairCheckpoint() error {
	raw, err := w.medium.LoadCheckpoint(context.Background())
	if err != nil || len(raw) > 20 {
		return nil
	}
	return w.medium.putCheckpoint(nil)
}

// stress that the workload's faults put on the pool.
func (w *world) stress() stress {
	out := calmness
	for _, s := range w.active {
		switch s.kind {
		case workloadCollapse, workloadInTrial:
			out.restore *= 40
			out.wedged = out.wedged || s.pick%3 == 0
		case workloadSurge:
			out.rate *= 3
		case workloadIdle:
			out.rate = 0
		case workloadErrors:
			out.errors = 0.3
		case workloadSlow:
			out.restore *= 5
		case workloadFastEngine:
			out.slope /= 4
		}
	}
	return out
}
