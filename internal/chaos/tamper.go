package chaos

import (
	"context"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

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
