package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Options are what a Notifier needs. All but Client are required.
type Options struct {
	Targets []tuner.NotificationConfig
	// Client sends; nil is one with a timeout of its own.
	Client *http.Client
	// Pause waits before another attempt, or until ctx ends.
	Pause      func(context.Context, time.Duration)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// queueLength bounds what waits for one target: more than a night of decisions.
const queueLength = 100

// sendTimeout bounds one attempt.
const sendTimeout = 10 * time.Second

// Notifier sends decisions to its targets while Run runs.
type Notifier struct {
	o       Options
	queues  []chan store.Decision
	outcome *prometheus.CounterVec
}

// New registers the counters; it sends nothing.
func New(o Options) (*Notifier, error) {
	if o.Pause == nil || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("notify: pause, logger and registerer are required")
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: sendTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	n := &Notifier{o: o, outcome: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kvtuner_notifications_total", Help: "Notifications, by target and outcome: sent, failed after all attempts, or dropped because the queue was full.",
	}, []string{"target", "outcome"})}
	for _, t := range o.Targets {
		n.queues = append(n.queues, make(chan store.Decision, queueLength))
		for _, outcome := range []string{"sent", "failed", "dropped"} {
			n.outcome.WithLabelValues(t.Name, outcome)
		}
	}
	if err := o.Registerer.Register(n.outcome); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	return n, nil
}

// Journal records decisions in another journal and then queues them. It never
// waits.
func (n *Notifier) Journal(j tuner.Journal) tuner.Journal { return journal{j, n} }

type journal struct {
	tuner.Journal
	notifier *Notifier
}

// Append implements tuner.Journal.
func (j journal) Append(d store.Decision) error {
	if err := j.Journal.Append(d); err != nil {
		return err
	}
	d.Evidence = nil
	for i, t := range j.notifier.o.Targets {
		if !slices.Contains(t.Wanted(), d.Kind) || len(t.Pools) > 0 && !slices.Contains(t.Pools, d.Pool) {
			continue
		}
		select {
		case j.notifier.queues[i] <- d:
		default:
			j.notifier.outcome.WithLabelValues(t.Name, "dropped").Inc()
		}
	}
	return nil
}

// Run sends until ctx ends; what is queued then is lost.
func (n *Notifier) Run(ctx context.Context) {
	var targets sync.WaitGroup
	for i, t := range n.o.Targets {
		targets.Go(func() { n.serve(ctx, t, n.queues[i]) })
	}
	targets.Wait()
}

func (n *Notifier) serve(ctx context.Context, t tuner.NotificationConfig, queue <-chan store.Decision) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-queue:
			n.deliver(ctx, t, d)
		}
	}
}

// Attempts and the pause after the first, which doubles.
const (
	attempts   = 6
	firstPause = 2 * time.Second
)

func (n *Notifier) deliver(ctx context.Context, t tuner.NotificationConfig, d store.Decision) {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := n.send(ctx, t, d)
		switch {
		case err == nil:
			n.outcome.WithLabelValues(t.Name, "sent").Inc()
			return
		case ctx.Err() != nil:
			return
		case attempt == attempts || errors.Is(err, errRefused):
			n.outcome.WithLabelValues(t.Name, "failed").Inc()
			n.o.Logger.Warn("a notification was not sent", "target", t.Name, "decision", d.ID, "attempts", attempt, "err", err)
			return
		}
		n.o.Pause(ctx, pause)
		pause *= 2
	}
}
