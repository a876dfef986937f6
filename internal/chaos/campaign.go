package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
)

// Options of a campaign.
type Options struct {
	// Schedules to live through, 1 or more. The first has seed Seed, the next
	// Seed+1, and so on.
	Schedules int
	Seed      uint64
	// Parallel schedules at a time; 0 is one.
	Parallel int
	// Disk is the share of schedules whose store and history are files, 0 to 1.
	Disk float64
	// Cluster is the share of the other schedules whose store is a ConfigMap, 0 to 1.
	Cluster float64
	// Trace takes every event of every schedule, if not nil; schedules then run
	// one at a time.
	Trace io.Writer
	// Progress is told after each schedule, if not nil.
	Progress func(done, violations int)

	parts parts
}

// DefaultDisk is the share of schedules on disk: enough to test the files, few
// enough not to wait for the disk most of the time.
const DefaultDisk = 0.1

// DefaultCluster is the share of schedules in a cluster.
const DefaultCluster = 0.2

// Validate names the option, its value and what is allowed.
func (o Options) Validate() error {
	var errs []error
	if o.Schedules < 1 || o.Schedules > 1e7 {
		errs = append(errs, fmt.Errorf("schedules %d: want 1 to 10000000", o.Schedules))
	}
	if o.Parallel < 0 || o.Parallel > 1024 {
		errs = append(errs, fmt.Errorf("parallel %d: want 0 to 1024", o.Parallel))
	}
	if !(o.Disk >= 0 && o.Disk <= 1) {
		errs = append(errs, fmt.Errorf("disk %v: want a share from 0 to 1", o.Disk))
	}
	if !(o.Cluster >= 0 && o.Cluster <= 1) {
		errs = append(errs, fmt.Errorf("cluster %v: want a share from 0 to 1", o.Cluster))
	}
	return errors.Join(errs...)
}

// Report of a campaign.
type Report struct {
	Schedules int `json:"schedules"`
	// Violations of a rule, each counted once a schedule.
	Violations int `json:"violations"`
	// FirstSeed is the lowest seed with a violation, nil if there is none.
	FirstSeed *uint64 `json:"first_seed"`
	// Found are the violations, by seed, maxFound at most.
	Found    []Violation `json:"found"`
	Activity Activity    `json:"activity"`
}

// maxFound bounds the violations that a report lists.
const maxFound = 100

// Run a campaign. An error is one of the campaign itself; violations are in the
// report. If ctx ends, so does the campaign, with the error.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	if o.Trace != nil {
		o.Parallel = 1
	}
	c := &campaign{o: o, results: make([]outcome, o.Schedules)}
	var workers sync.WaitGroup
	for range max(o.Parallel, 1) {
		workers.Go(func() { c.work(ctx) })
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	return c.report()
}

// outcome of one schedule.
type outcome struct {
	violations []Violation
	activity   Activity
	err        error
}

type campaign struct {
	o Options

	mu      sync.Mutex
	next    int
	done    int
	found   int
	results []outcome
}

func (c *campaign) work(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		i := c.next
		c.next++
		c.mu.Unlock()
		if i >= c.o.Schedules {
			return
		}
		r := c.o.schedule(c.o.Seed + uint64(i))
		c.mu.Lock()
		c.results[i] = r
		c.done++
		c.found += len(r.violations)
		if c.o.Progress != nil {
			c.o.Progress(c.done, c.found)
		}
		c.mu.Unlock()
	}
}

// schedule lives through one seed's plan.
func (o Options) schedule(seed uint64) (out outcome) {
	w, err := newWorld(draw(seed, o.Disk, o.Cluster), o.parts, o.Trace)
	if err != nil {
		return outcome{err: fmt.Errorf("schedule of seed %d: %w", seed, err)}
	}
	w.introduce()
	defer func() {
		if r := recover(); r != nil {
			w.watch.violate("nothing panics", "%v\n%s", r, debug.Stack())
			out = outcome{violations: w.watch.violations, activity: w.watch.activity, err: w.close()}
		}
	}()
	err = errors.Join(w.live(), w.close())
	if err != nil {
		err = fmt.Errorf("schedule of seed %d: %w", seed, err)
	}
	return outcome{w.watch.violations, w.watch.activity, err}
}

// introduce a schedule in its trace.
func (w *world) introduce() {
	p, s := w.plan, w.plan.settings
	w.trace("schedule of seed %d: %v from %s, %d engine(s), %d EPP replica(s), on disk: %v, in a cluster: %v", p.seed, p.length, p.start.Format("2006-01-02 15:04"), p.load.engines, p.replicas, p.onDisk, p.inCluster)
	w.trace("mode %s, scrapes of %v, blocks of %v, step %d to %d, exposure %v, schedule %+v", s.Mode, s.ScrapeInterval, s.Trial.Block, s.Search.Step, s.Search.MaxStep, s.Guard.MaxExposure, s.Schedule)
	for _, f := range p.faults {
		w.trace("planned at %v: %s", f.at, f)
	}
}

func (c *campaign) report() (Report, error) {
	r := Report{Schedules: c.o.Schedules, Activity: newActivity(), Found: []Violation{}}
	var errs []error
	for _, o := range c.results {
		errs = append(errs, o.err)
		r.Violations += len(o.violations)
		r.Found = append(r.Found, o.violations...)
		r.Activity.add(o.activity)
	}
	if len(r.Found) > 0 {
		first := r.Found[0].Seed
		r.FirstSeed = &first
	}
	r.Found = r.Found[:min(len(r.Found), maxFound)]
	return r, errors.Join(errs...)
}

func (a *Activity) add(o Activity) {
	for k, n := range o.Decisions {
		a.Decisions[k] += n
	}
	for k, n := range o.Faults {
		a.Faults[k] += n
	}
	a.Writes += o.Writes
	a.Steps += o.Steps
	a.Failed += o.Failed
	a.Requests += o.Requests
	a.VirtualHours += o.VirtualHours
}
