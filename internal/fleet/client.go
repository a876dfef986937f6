package fleet

import "github.com/kvtuner/kvtuner/plugin"

// stream is one closed-loop client.
type stream struct {
	busy   bool
	issued uint64
}

// openClient is the client number of the open loop, above any stream.
const openClient = 1 << 20

// startClients brings the clients in line with the workload: missing streams
// start, surplus ones end with their request, the open loop starts or stops.
func (f *Fleet) startClients() {
	w := &f.workload
	for len(f.streams) < w.Streams {
		f.streams = append(f.streams, stream{})
	}
	for i := range w.Streams {
		if !f.streams[i].busy {
			f.issueStream(int32(i))
		}
	}
	if w.Streams == 0 {
		f.phaseStart = f.now
		f.openEpoch++
		f.scheduleOpen()
	}
}

func (f *Fleet) issueStream(i int32) {
	s := &f.streams[i]
	s.busy = true
	s.issued++
	f.issue(i, uint64(i)<<40|s.issued)
}

// scheduleOpen draws the next arrival of the on/off Poisson process by
// thinning: candidates come at the higher rate.
func (f *Fleet) scheduleOpen() {
	t := f.now
	for {
		t = after(t, f.arrivals.exponential()/f.workload.Arrivals.OnRate)
		rate := f.workload.Arrivals.rate(t - f.phaseStart)
		if f.arrivals.chance(rate / f.workload.Arrivals.OnRate) {
			break
		}
	}
	f.events.push(t, evIssue, f.openEpoch)
}

// issueOpen issues a request of the open loop, unless it was stopped since.
func (f *Fleet) issueOpen(epoch int32) {
	if epoch != f.openEpoch || f.workload.Streams > 0 {
		return
	}
	f.openIssued++
	f.issue(-1, openClient<<40|f.openIssued)
	f.scheduleOpen()
}

// issue sends a client's next request towards the router. What it asks for
// depends on the client and its count alone.
func (f *Fleet) issue(client int32, serial uint64) {
	id := f.requests.get()
	q := &f.requests.all[id]
	f.choice.reseed(mix(f.seed, forPrefixes), serial)
	q.serial = serial
	q.stream = client
	q.prefix = f.mix.draw(f.choice)
	prefix := f.prefixes.tokens[q.prefix]
	q.prefixBlocks = prefix / f.blockTokens
	q.promptTokens = prefix + int32(f.workload.NewTokens)
	q.outputTokens = int32(f.workload.OutputTokens)
	q.issued = f.now
	f.count.issued++
	f.events.push(after(f.now, f.profile.ClientOverhead), evArrive, id)
}

// arrive routes a request, asks the policy and starts it on its engine.
func (f *Fleet) arrive(id int32) {
	q := &f.requests.all[id]
	q.arrived = f.now
	q.replica = f.route(q)
	f.decide(q)
	if q.decision.Action == plugin.Load {
		f.startLookup(id)
		return
	}
	r := &f.replicas[q.replica]
	r.ready.push(id)
	f.wake(r)
}

// complete records a finished request and lets its client go on.
func (f *Fleet) complete(id int32) {
	q := &f.requests.all[id]
	f.recordCompletion(q)
	client := q.stream
	f.requests.put(id)
	if client < 0 {
		return
	}
	f.streams[client].busy = false
	if int(client) < f.workload.Streams {
		f.issueStream(client)
	}
}
