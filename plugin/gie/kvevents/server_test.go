package kvevents

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// publisher is an engine's pair of sockets, made with another implementation of
// ZeroMQ and speaking as vLLM's ZmqEventPublisher does.
type publisher struct {
	t       testing.TB
	address string
	port    int // of events; replays are at the next one
	stop    context.CancelFunc
	pub     zmq4.Socket
	router  zmq4.Socket
	served  sync.WaitGroup

	mu     sync.Mutex
	engine *testEngine
}

func newPublisher(t testing.TB, address string, port int) *publisher {
	t.Helper()
	p := &publisher{t: t, address: address, port: port, engine: newEngine()}
	p.listen()
	t.Cleanup(p.close)
	return p
}

// freePorts finds two adjacent ports that are free on all test addresses.
func freePorts(t testing.TB) int {
	t.Helper()
	for port := 20000 + time.Now().Nanosecond()%20000; port < 60000; port += 2 {
		if free(port) && free(port+1) {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func (p *publisher) listen() {
	p.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.pub, p.router = zmq4.NewPub(ctx), zmq4.NewRouter(ctx)
	for i, s := range []zmq4.Socket{p.pub, p.router} {
		if err := s.Listen(fmt.Sprintf("tcp://%s:%d", p.address, p.port+i)); err != nil {
			p.t.Fatal(err)
		}
	}
	p.served.Go(p.serve)
}

func (p *publisher) close() {
	p.stop()
	_ = p.pub.Close()
	_ = p.router.Close()
	p.served.Wait()
}

// restart is what a new process of the engine does.
func (p *publisher) restart() {
	p.close()
	p.engine.restart()
	p.listen()
}

// serve answers replay requests.
func (p *publisher) serve() {
	for {
		request, err := p.router.Recv()
		if err != nil {
			return
		}
		if len(request.Frames) != 3 || len(request.Frames[1]) != 0 || len(request.Frames[2]) != 8 {
			p.t.Errorf("replay request of frames %q", request.Frames)
			return
		}
		id, from := request.Frames[0], binary.BigEndian.Uint64(request.Frames[2])
		p.mu.Lock()
		buffer := p.engine.buffer
		p.mu.Unlock()
		for _, m := range buffer {
			if m.number >= from {
				_ = p.router.SendMulti(zmq4.NewMsgFrom(id, nil, binary.BigEndian.AppendUint64(nil, m.number), m.payload))
			}
		}
		_ = p.router.SendMulti(zmq4.NewMsgFrom(id, nil, binary.BigEndian.AppendUint64(nil, endOfReplay), nil))
	}
}

// publish sends a message to whoever is subscribed by now.
func (p *publisher) publish(events ...testEvent) {
	p.t.Helper()
	m := p.lose(events...)
	if err := p.pub.SendMulti(zmq4.NewMsgFrom([]byte("kv@pod@model"), binary.BigEndian.AppendUint64(nil, m.number), m.payload)); err != nil {
		p.t.Error(err)
	}
}

// lose only keeps a message for replays.
func (p *publisher) lose(events ...testEvent) message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.publish(events...)
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}
