package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// message is one batch of events, with its number in the engine's history. The
// payload is valid until the next message is received.
type message struct {
	number  uint64
	payload []byte
}

// source is where an endpoint's messages come from.
type source interface {
	// subscribe connects to the messages to come.
	subscribe(ctx context.Context) (stream, error)
	// replay yields the messages that the engine still has, from a number on.
	replay(ctx context.Context, from uint64, yield func(message) error) error
}

type stream interface {
	receive() (message, error)
	close()
}

var (
	errNoReplay = errors.New("no replay port configured")
	errFrames   = errors.New("not a KV event message: want topic, sequence number of 8 bytes, payload")
)

// betweenReplays is how long the next message of a replay may take. The engine
// sends them in one go, but what exceeds the socket's high water mark is dropped,
// the last message included.
const betweenReplays = 500 * time.Millisecond

// endOfReplay is the number of the message that ends a replay.
const endOfReplay = math.MaxUint64

// zmqSource is vLLM's publisher: a PUB socket and, if configured there, a ROUTER
// socket that replays.
type zmqSource struct {
	events, replays string // host:port; no replays if empty
	topic           string
	limit           int
	timeout         time.Duration
}

func (s *zmqSource) subscribe(ctx context.Context) (stream, error) {
	c, err := dial(ctx, s.events, "SUB", s.limit, s.timeout)
	if err != nil {
		return nil, err
	}
	if err := c.subscribe(s.topic); err != nil {
		c.close()
		return nil, err
	}
	return zmqStream{c}, nil
}

type zmqStream struct{ *conn }

func (s zmqStream) receive() (message, error) {
	frames, err := s.conn.receive(0)
	if err != nil {
		return message{}, err
	}
	if len(frames) != 3 || len(frames[1]) != 8 {
		return message{}, errFrames
	}
	return message{binary.BigEndian.Uint64(frames[1]), frames[2]}, nil
}

// replay asks as a REQ socket would, but takes any number of answers.
func (s *zmqSource) replay(ctx context.Context, from uint64, yield func(message) error) error {
	if s.replays == "" {
		return errNoReplay
	}
	c, err := dial(ctx, s.replays, "DEALER", s.limit, s.timeout)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for timeout := s.timeout; ; timeout = min(timeout, betweenReplays) {
		frames, err := c.receive(timeout)
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return errFrames
		}
		number := binary.BigEndian.Uint64(frames[1])
		if number == endOfReplay {
			return nil
		}
		if err := yield(message{number, frames[2]}); err != nil {
			return err
		}
	}
}
