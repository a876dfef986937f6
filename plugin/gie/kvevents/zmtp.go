package kvevents

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ZMTP 3.0 (rfc.zeromq.org/spec/23), the client's half of what is needed here: a
// SUB and a DEALER socket over TCP without security. A client library would
// allocate whatever size a frame announces, in a goroutine of its own, and so
// let one engine end the Endpoint Picker; here a message has a limit.

// Frame flags.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	maxFrames      = 8
	maxCommand     = 4096
	keptBuffer     = 1 << 20
	sendTimeout    = 5 * time.Second
	subscribe      = 1
	mechanismStart = 12
	mechanismEnd   = 32
)

// keepAlive notices a node that is gone within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

var errTooLarge = errors.New("message over the limit of maxMessageBytes")

// conn is a connection to one ZeroMQ socket. It serves one goroutine.
type conn struct {
	net    net.Conn
	r      *bufio.Reader
	limit  int
	buf    []byte
	frames [][]byte
	stop   func() bool
}

// dial connects as a socket of the given type. The end of ctx closes the
// connection.
func dial(ctx context.Context, address, socket string, limit int, timeout time.Duration) (*conn, error) {
	d := net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive}
	n, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := newConn(ctx, n, limit)
	_ = n.SetDeadline(time.Now().Add(timeout))
	if err := c.handshake(socket); err != nil {
		c.close()
		return nil, fmt.Errorf("ZMTP handshake with %s: %w", address, err)
	}
	return c, n.SetDeadline(time.Time{})
}

func newConn(ctx context.Context, n net.Conn, limit int) *conn {
	return &conn{
		net:   n,
		r:     bufio.NewReaderSize(n, 64<<10),
		limit: limit,
		stop:  context.AfterFunc(ctx, func() { _ = n.Close() }),
	}
}

func (c *conn) close() {
	c.stop()
	_ = c.net.Close()
}

func (c *conn) handshake(socket string) error {
	greeting := [64]byte{0: 0xff, 9: 0x7f, 10: 3}
	copy(greeting[mechanismStart:], "NULL")
	if _, err := c.net.Write(greeting[:]); err != nil {
		return err
	}
	var peer [64]byte
	if _, err := io.ReadFull(c.r, peer[:]); err != nil {
		return err
	}
	if peer[0] != 0xff || peer[9] != 0x7f || peer[10] < 3 {
		return errors.New("not a ZeroMQ socket of version 3 or later")
	}
	if [mechanismEnd - mechanismStart]byte(peer[mechanismStart:mechanismEnd]) != [20]byte{'N', 'U', 'L', 'L'} {
		return fmt.Errorf("security mechanism %q; only NULL is supported", peer[mechanismStart:mechanismEnd])
	}
	if err := c.write(flagCommand, ready(socket)); err != nil {
		return err
	}
	return c.readReady()
}

// ready is the command that names the socket's type.
func ready(socket string) []byte {
	const name = "Socket-Type"
	b := append([]byte{5}, "READY"...)
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(socket)))
	return append(b, socket...)
}

func (c *conn) readReady() error {
	flags, size, err := c.header()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || size > maxCommand {
		return errors.New("no READY command")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return err
	}
	if name, _ := command(body); name != "READY" {
		return fmt.Errorf("command %q instead of READY", name)
	}
	return nil
}

// command splits a command into its name and data.
func command(body []byte) (name string, data []byte) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil
	}
	return string(body[1 : 1+body[0]]), body[1+body[0]:]
}

// subscribe asks for messages whose topic begins so.
func (c *conn) subscribe(topic string) error {
	return c.send(append([]byte{subscribe}, topic...))
}

// send writes one message.
func (c *conn) send(frames ...[]byte) error {
	_ = c.net.SetWriteDeadline(time.Now().Add(sendTimeout))
	for i, frame := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := c.write(flags, frame); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) write(flags byte, frame []byte) error {
	header := []byte{flags, byte(len(frame))}
	if len(frame) > 255 {
		header = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(frame)))
	}
	_, err := c.net.Write(append(header, frame...))
	return err
}

// receive reads one message, waiting as long as it takes if timeout is 0. The
// frames are valid until the next call.
func (c *conn) receive(timeout time.Duration) ([][]byte, error) {
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	if err := c.net.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	var ends [maxFrames]int
	if cap(c.buf) > keptBuffer {
		c.buf = nil
	}
	c.buf, c.frames = c.buf[:0], c.frames[:0]
	for n := 0; ; {
		flags, size, err := c.header()
		if err != nil {
			return nil, err
		}
		if size > uint64(c.limit-len(c.buf)) {
			return nil, errTooLarge
		}
		start := len(c.buf)
		if err := c.body(int(size)); err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := c.answer(c.buf[start:]); err != nil {
				return nil, err
			}
			c.buf = c.buf[:start]
			continue
		}
		if n == maxFrames {
			return nil, fmt.Errorf("message of more than %d frames", maxFrames)
		}
		ends[n] = len(c.buf)
		if n++; flags&flagMore == 0 {
			return c.split(ends[:n]), nil
		}
	}
}

func (c *conn) split(ends []int) [][]byte {
	start := 0
	for _, end := range ends {
		c.frames = append(c.frames, c.buf[start:end:end])
		start = end
	}
	return c.frames
}

func (c *conn) header() (flags byte, size uint64, err error) {
	var b [9]byte
	if _, err = io.ReadFull(c.r, b[:2]); err != nil {
		return 0, 0, err
	}
	if b[0]&flagLong == 0 {
		return b[0], uint64(b[1]), nil
	}
	if _, err = io.ReadFull(c.r, b[2:]); err != nil {
		return 0, 0, err
	}
	return b[0], binary.BigEndian.Uint64(b[1:]), nil
}

// body appends to the buffer as the bytes arrive: a size alone costs nothing.
func (c *conn) body(size int) error {
	const step = 256 << 10
	for size > 0 {
		n := min(size, step)
		start := len(c.buf)
		c.buf = append(c.buf, make([]byte, n)...)
		if _, err := io.ReadFull(c.r, c.buf[start:]); err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// answer replies to a heartbeat of ZMTP 3.1 and passes over other commands.
func (c *conn) answer(body []byte) error {
	const ttl = 2
	name, data := command(body)
	if name != "PING" || len(data) < ttl {
		return nil
	}
	context := data[ttl:min(len(data), ttl+16)]
	_ = c.net.SetWriteDeadline(time.Now().Add(sendTimeout))
	return c.write(flagCommand, append(append([]byte{4}, "PONG"...), context...))
}
