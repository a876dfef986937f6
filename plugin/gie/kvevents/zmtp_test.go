package kvevents

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// peer is the other end of a connection, byte by byte.
type peer struct{ net.Conn }

// connectTo dials a listener that does as told with what connects.
func connectTo(t *testing.T, limit int, serve func(peer)) (*conn, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			serve(peer{c})
			_ = c.Close()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-done
	})
	return dial(ctx, l.Addr().String(), "SUB", limit, 10*time.Second)
}

var greeting = func() []byte {
	b := make([]byte, 64)
	b[0], b[9], b[10], b[11] = 0xff, 0x7f, 3, 1
	copy(b[12:], "NULL")
	return b
}()

func frame(flags byte, body []byte) []byte {
	if flags&flagLong == 0 {
		return append([]byte{flags, byte(len(body))}, body...)
	}
	return append(binary.BigEndian.AppendUint64([]byte{flags}, uint64(len(body))), body...)
}

// greet does the peer's part of the handshake and takes the subscription.
func (p peer) greet() {
	_, _ = p.Write(greeting)
	_, _ = p.Write(frame(flagCommand, ready("PUB")))
	_, _ = io.ReadFull(p, make([]byte, 64+2+len(ready("SUB"))))
}

func TestHandshakeRefusesOthers(t *testing.T) {
	old, secured := bytes.Clone(greeting), bytes.Clone(greeting)
	old[10] = 1
	copy(secured[12:], "CURVE")
	for name, test := range map[string]struct {
		says []byte
		want string
	}{
		"HTTP":            {[]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"), "version 3"},
		"old":             {old, "version 3"},
		"secured":         {secured, "CURVE"},
		"closed":          {greeting[:20], ""},
		"no READY":        {append(bytes.Clone(greeting), frame(0, []byte("hello"))...), "READY"},
		"another command": {append(bytes.Clone(greeting), frame(flagCommand, []byte("\x05ERROR"))...), "ERROR"},
		"an empty name":   {append(bytes.Clone(greeting), frame(flagCommand, []byte{200})...), "READY"},
		"endless READY":   {append(bytes.Clone(greeting), 6, 0xff, 0, 0, 0, 0, 0, 0, 0), "READY"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connectTo(t, 1<<20, func(p peer) {
				_, _ = p.Write(test.says)
				_, _ = io.CopyN(io.Discard, p, 64)
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestReceive(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 1000)
	tests := map[string]struct {
		says []byte
		want [][]byte
	}{
		"frames": {
			bytes.Join([][]byte{frame(flagMore, []byte("a")), frame(flagMore, nil), frame(flagLong, long)}, nil),
			[][]byte{[]byte("a"), {}, long},
		},
		"commands between": {
			bytes.Join([][]byte{frame(flagCommand, []byte("\x04PINGxxctx")), frame(flagMore, []byte("a")), frame(flagCommand, []byte("\x05OTHER")), frame(0, []byte("b"))}, nil),
			[][]byte{[]byte("a"), []byte("b")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := connectTo(t, 1<<20, func(p peer) {
				p.greet()
				_, _ = p.Write(test.says)
				if name == "commands between" {
					pong := make([]byte, len(frame(0, []byte("\x04PONGctx"))))
					_, _ = io.ReadFull(p, pong)
					if !bytes.Equal(pong, frame(flagCommand, []byte("\x04PONGctx"))) {
						t.Errorf("answered %q", pong)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			got, err := c.receive(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReceiveIsBounded(t *testing.T) {
	const limit = 1 << 20
	huge := func(size uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flagLong}, size) }
	many := bytes.Repeat(frame(flagMore, []byte("x")), maxFrames+1)
	tests := map[string]struct {
		says []byte
		want func(error) bool
	}{
		"exabytes":          {huge(1 << 63), func(err error) bool { return errors.Is(err, errTooLarge) }},
		"one byte too many": {huge(limit + 1), func(err error) bool { return errors.Is(err, errTooLarge) }},
		"in frames":         {append(frame(flagMore|flagLong, make([]byte, limit-1)), frame(0, []byte("xy"))...), func(err error) bool { return errors.Is(err, errTooLarge) }},
		"a huge command":    {append([]byte{flagLong | flagCommand}, huge(1 << 40)[1:]...), func(err error) bool { return errors.Is(err, errTooLarge) }},
		"too many frames":   {many, func(err error) bool { return err != nil && strings.Contains(err.Error(), "frames") }},
		"announced only":    {huge(limit), func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := connectTo(t, limit, func(p peer) {
				p.greet()
				_, _ = p.Write(test.says)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			if _, err := c.receive(10 * time.Second); !test.want(err) {
				t.Errorf("got %v", err)
			}
			if cap(c.buf) > 2*limit {
				t.Errorf("buffer of %d bytes", cap(c.buf))
			}
		})
	}
}

func TestReceiveEndsWithTheContext(t *testing.T) {
	block := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, _ := l.Accept()
		peer{c}.greet()
		close(block)
	}()
	c, err := dial(ctx, l.Addr().String(), "SUB", 1<<20, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	<-block
	cancel()
	if _, err := c.receive(0); err == nil {
		t.Error("no error")
	}
}

// TestReplayOfTheWrongShape has a replay socket that answers something else.
func TestReplayOfTheWrongShape(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		peer{c}.greet()
		_, _ = c.Write(frame(0, []byte("what?")))
		_, _ = io.Copy(io.Discard, c)
	}()
	s := &zmqSource{replays: l.Addr().String(), limit: 1 << 20, timeout: 10 * time.Second}
	if err := s.replay(t.Context(), 0, func(message) error { return nil }); !errors.Is(err, errFrames) {
		t.Errorf("got %v", err)
	}
	<-done
}

func FuzzReceive(f *testing.F) {
	f.Add(frame(0, []byte("a")))
	f.Add(append(frame(flagMore, []byte("a")), frame(flagLong, make([]byte, 300))...))
	f.Add(frame(flagCommand, []byte("\x04PINGxxctx")))
	f.Fuzz(func(t *testing.T, says []byte) {
		const limit = 4096
		here, there := net.Pipe()
		c := newConn(context.Background(), here, limit)
		defer c.close()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		go func() {
			_, _ = there.Write(says)
			_ = there.Close()
		}()
		for {
			frames, err := c.receive(0)
			if err != nil {
				return
			}
			size := 0
			for _, frame := range frames {
				size += len(frame)
			}
			if size > limit || len(frames) > maxFrames {
				t.Fatalf("%d frames of %d bytes", len(frames), size)
			}
		}
	})
}
