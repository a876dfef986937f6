package fleet

import "github.com/kvtuner/kvtuner/plugin"

// stream is one closed-loop client.
type stream struct {
	busy   bool
	issued uint64
	said   int32 // tokens of its conversation so far
}

// demand is what a request asks for, in tokens.
type demand struct {
	prefix int32
	shared int32 // of the prompt, leading tokens that are the prefix
	prompt int32
	output int32
	kept   int32 // of prompt and output, what becomes part of the prefix
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
			f.startStream(int32(i))
		}
	}
	if w.Streams == 0 {
		f.phaseStart = f.now
		f.openEpoch++
		f.traced = 0
		f.scheduleOpen()
	}
}

// startStream issues a stream's next request, after its pause.
func (f *Fleet) startStream(i int32) {
	s := &f.streams[i]
	s.busy = true
	s.issued++
	if f.workload.Think == 0 {
		f.issueStream(i)
		return
	}
	f.choice.reseed(mix(f.seed, forArrivals), uint64(i)<<40|s.issued)
	pause := f.choice.exponential() * f.workload.Think.Seconds()
	f.events.push(after(f.now, pause), evThought, i)
}

// endPause issues the request of a stream that has thought, unless the
// workload has fewer streams by now.
func (f *Fleet) endPause(i int32) {
	if int(i) >= f.workload.Streams {
		f.streams[i].busy = false
		return
	}
	f.issueStream(i)
}

func (f *Fleet) issueStream(i int32) {
	serial := uint64(i)<<40 | f.streams[i].issued
	if f.workload.Chat != nil {
		f.issue(i, serial, f.nextTurn(i, serial))
		return
	}
	f.issue(i, serial, f.drawDemand(serial))
}

// scheduleOpen schedules the next arrival of the open loop: the trace's next,
// or one of the on/off Poisson process by thinning, where candidates come at
// the higher rate.
func (f *Fleet) scheduleOpen() {
	t := f.now
	if trace := f.workload.Trace; trace != nil {
		if f.traced == len(trace.Requests) {
			return
		}
		t = f.phaseStart + instant(trace.Requests[f.traced].Arrival)
	} else {
		t = f.nextArrival(t)
	}
	f.events.push(t, evIssue, f.openEpoch)
}

func (f *Fleet) nextArrival(t instant) instant {
	for {
		t = after(t, f.arrivals.exponential()/f.workload.Arrivals.OnRate)
		rate := f.workload.Arrivals.rate(t - f.phaseStart)
		if f.arrivals.chance(rate / f.workload.Arrivals.OnRate) {
			return t
		}
	}
}

// issueOpen issues a request of the open loop, unless it was stopped since.
func (f *Fleet) issueOpen(epoch int32) {
	if epoch != f.openEpoch || f.workload.Streams > 0 {
		return
	}
	f.openIssued++
	serial := openClient<<40 | f.openIssued
	if f.workload.Trace != nil {
		f.issue(-1, serial, f.tracedDemand())
	} else {
		f.issue(-1, serial, f.drawDemand(serial))
	}
	f.scheduleOpen()
}

// drawDemand draws from the mix. What a client asks for depends on the client
// and its count alone.
func (f *Fleet) drawDemand(serial uint64) demand {
	f.choice.reseed(mix(f.seed, forPrefixes), serial)
	prefix := f.mix.draw(f.choice)
	tokens := f.prefixes.tokens[prefix]
	return demand{
		prefix: prefix,
		shared: tokens,
		prompt: tokens + int32(f.workload.NewTokens),
		output: int32(f.workload.OutputTokens),
	}
}

// issue sends a client's request towards the router.
func (f *Fleet) issue(client int32, serial uint64, d demand) {
	id := f.requests.get()
	q := &f.requests.all[id]
	q.serial = serial
	q.stream = client
	q.prefix = d.prefix
	q.prefixBlocks = d.shared / f.blockTokens
	q.keptBlocks = d.kept / f.blockTokens
	q.promptTokens = d.prompt
	q.outputTokens = d.output
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
	if f.deaf || q.decision.Action == plugin.Load {
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
		f.startStream(client)
	}
}
