package chaos

import (
	"slices"
	"time"

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
	case operatorPauses:
		return pickFrom(s.fault, w.tuners).command(tuner.Command{Actor: "chaos", Verb: tuner.Pause, For: max(time.Minute, s.last)})
	case operatorRejects:
		return reject(pickFrom(s.fault, w.tuners))
	case clusterDeleted, clusterHeld, clusterSigned:
		w.strikeCluster(s)
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
	case clusterHeld:
		w.release(s)
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

func (w *world) jump(p *process, by time.Duration) {
	p.offset += by
	w.watch.jumped(p, by)
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
