package kvevents

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
)

const (
	firstBackOff = 200 * time.Millisecond
	maxBackOff   = 30 * time.Second
	// stable is how long a connection lasts that puts an end to backing off.
	stable = time.Minute
)

var (
	errRestarted = errors.New("the engine has another history: it was restarted")
	errUnstable  = errors.New("messages out of order again, too soon after the last time")
	errHole      = errors.New("replay with a hole")
)

// follower keeps the index of one endpoint up to date.
type follower struct {
	source  source
	index   *index
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time
	settle  time.Duration

	sequence sequence
	digest   maphash.Seed
	healed   time.Time // when the history was last put in order during a connection
	advanced bool      // by the replay under way

	connected atomic.Bool
	// settled is when the index counts as whole, in nanoseconds since 1970; 0 if
	// it has been followed from the beginning.
	settled atomic.Int64
}

func newFollower(s source, c *Config, h hasher, m *metrics, log *slog.Logger, now func() time.Time) *follower {
	return &follower{
		source:  s,
		index:   newIndex(h, c, m),
		log:     log,
		metrics: m,
		now:     now,
		settle:  c.Settle,
		digest:  h.seed,
	}
}

// match returns the prefix of a prompt that the endpoint holds.
func (f *follower) match(c *chains) (plugin.PrefixMatch, int, lookup) {
	if why := f.lookup(); why != lookupKnown {
		return plugin.PrefixMatch{}, 0, why
	}
	return f.index.match(c)
}

// lookup says whether the index can be asked.
func (f *follower) lookup() lookup {
	switch {
	case !f.connected.Load():
		return lookupDisconnected
	case f.now().UnixNano() < f.settled.Load():
		return lookupSettling
	default:
		return lookupKnown
	}
}

// run follows the endpoint until ctx ends.
func (f *follower) run(ctx context.Context) {
	backOff := firstBackOff
	for {
		start := f.now()
		err := f.follow(ctx)
		f.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		if f.now().Sub(start) >= stable {
			backOff = firstBackOff
		}
		f.log.Debug("KV events: connection lost, trying again", "after", backOff, "error", err)
		if !wait(ctx, backOff/2+rand.N(backOff/2)) {
			return
		}
		backOff = min(2*backOff, maxBackOff)
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// follow serves one connection.
func (f *follower) follow(ctx context.Context) error {
	stream, err := f.source.subscribe(ctx)
	if err != nil {
		return err
	}
	defer stream.close()
	f.metrics.connects.Inc()
	if err := f.resync(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		f.joinUnproven(err)
	}
	f.healed = time.Time{}
	f.connected.Store(true)
	for {
		m, err := stream.receive()
		if err != nil {
			return err
		}
		if err := f.take(ctx, m); err != nil {
			return err
		}
	}
}

// joinUnproven goes on where no replay can tell what was missed.
func (f *follower) joinUnproven(err error) {
	if !errors.Is(err, errNoReplay) {
		f.log.Warn("KV events: no replay; blocks stored before are not known", "error", err)
	}
	if f.sequence.begun {
		f.metrics.resets[lossReconnect].Inc()
	}
	f.forget()
	f.sequence = sequence{}
}

// take applies a live message, after what is missing before it.
func (f *follower) take(ctx context.Context, m message) error {
	d := maphash.Bytes(f.digest, m.payload)
	if !f.sequence.begun {
		f.begin(m.number)
	}
	switch f.sequence.judge(m.number, d) {
	case inOrder:
		f.apply(m, d)
	case repeated:
		f.metrics.repeated.Inc()
	default:
		return f.heal(ctx, m, d)
	}
	return nil
}

// begin starts a history: whole only from its beginning on.
func (f *follower) begin(number uint64) {
	f.sequence.begin(number)
	if number == 0 {
		f.settled.Store(0)
	}
}

// heal brings the history in order before a message that is ahead or behind.
func (f *follower) heal(ctx context.Context, m message, d uint64) error {
	now := f.now()
	if !f.healed.IsZero() && now.Sub(f.healed) < firstBackOff {
		return errUnstable
	}
	f.healed = now
	if m.number > f.sequence.next {
		f.metrics.lost.Add(float64(m.number - f.sequence.next))
	}
	kept := message{m.number, append([]byte(nil), m.payload...)}
	err := f.resync(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch v := f.sequence.judge(m.number, d); {
	case v == inOrder:
		f.apply(kept, d)
	case v == repeated, v == behind && err == nil: // behind: proven to be old
		f.metrics.repeated.Inc()
	case v == behind:
		f.restart(lossRestart, m.number)
		f.apply(kept, d)
	default:
		f.restart(lossGap, m.number)
		f.apply(kept, d)
	}
	return nil
}

// restart drops what is known and begins a history at a number.
func (f *follower) restart(why loss, number uint64) {
	f.metrics.resets[why].Inc()
	f.forget()
	f.begin(number)
}

// forget drops the index. What the engine holds is told again only as it is
// stored again, so that the index settles with time.
func (f *follower) forget() {
	f.index.reset()
	f.settled.Store(f.now().Add(f.settle).UnixNano())
}

// resync applies the messages that the engine still has beyond the last one
// applied, if that is among them; else it begins anew with all of them.
func (f *follower) resync(ctx context.Context) error {
	last, ok := f.sequence.last()
	if !ok {
		return f.replayAll(ctx)
	}
	joined := false
	err := f.replay(ctx, last, func(m message) error {
		switch {
		case joined:
		case m.number > last: // nothing proves that it follows
			f.metrics.lost.Add(float64(m.number - last - 1))
			f.restart(lossGap, m.number)
		case f.sequence.judge(m.number, maphash.Bytes(f.digest, m.payload)) != repeated:
			return errRestarted
		}
		joined = true
		return f.catchUp(m)
	})
	if errors.Is(err, errRestarted) || err == nil && !joined {
		f.metrics.resets[lossRestart].Inc()
		return f.replayAll(ctx)
	}
	return err
}

func (f *follower) replayAll(ctx context.Context) error {
	f.forget()
	f.sequence = sequence{}
	if err := f.replay(ctx, 0, f.catchUp); err != nil {
		return err
	}
	if !f.sequence.begun {
		f.begin(0)
	}
	return nil
}

// replay asks again from where a replay broke off, as long as each brings the
// history further: a ROUTER socket drops what a reader does not take in time.
func (f *follower) replay(ctx context.Context, from uint64, yield func(message) error) error {
	for {
		f.advanced = false
		err := f.source.replay(ctx, from, yield)
		if errors.Is(err, errNoReplay) {
			return err
		}
		f.metrics.replays.Inc()
		if err == nil || errors.Is(err, errRestarted) {
			return err
		}
		if !f.advanced || ctx.Err() != nil {
			f.metrics.failedReplays.Inc()
			return fmt.Errorf("replay from %d: %w", from, err)
		}
		from, _ = f.sequence.last() // once more, to prove that it is the same history
	}
}

// catchUp applies a replayed message. If the first of a replay is ahead, the
// engine cannot fill the hole before it.
func (f *follower) catchUp(m message) error {
	d := maphash.Bytes(f.digest, m.payload)
	if !f.sequence.begun {
		f.begin(m.number)
	}
	switch f.sequence.judge(m.number, d) {
	case inOrder:
		f.apply(m, d)
	case repeated:
	case ahead:
		if f.advanced {
			return errHole
		}
		f.metrics.lost.Add(float64(m.number - f.sequence.next))
		f.restart(lossGap, m.number)
		f.apply(m, d)
	case behind:
		return errRestarted
	}
	return nil
}

// apply takes the message in order into the index. One that cannot be read may
// have removed anything.
func (f *follower) apply(m message, d uint64) {
	f.sequence.applied(d)
	f.advanced = true
	f.metrics.batches.Inc()
	if err := decode(m.payload, f.index.apply); err != nil {
		f.log.Warn("KV events: message not understood, forgetting the endpoint's blocks", "sequence", m.number, "error", err)
		f.metrics.resets[lossMalformed].Inc()
		f.forget()
	}
}
