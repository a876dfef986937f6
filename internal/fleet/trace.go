package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"time"
)

// Trace is a recorded series of requests, replayed once at its own pace.
type Trace struct {
	// Requests in the order of their arrival.
	Requests []TraceRequest
}

// TraceRequest is one request. Requests of one Prefix share the first tokens of
// their prompts, as many as the shorter PrefixTokens, rounded down to blocks;
// requests of different ones share nothing.
type TraceRequest struct {
	// Arrival since the start of the trace.
	Arrival time.Duration
	// Prefix is a number from 0, in the order of first use.
	Prefix int
	// PrefixTokens lead the prompt, NewTokens follow. Whatever a prefix leaves
	// over of its last block is as private as the new tokens.
	PrefixTokens, NewTokens, OutputTokens int
}

// Limits of what a line may say.
const (
	maxTraceTokens  = 1 << 24
	maxTraceSeconds = 1e8
	maxTraceLine    = 1 << 22 // bytes
)

// Length is the time from the start of the trace to its last arrival.
func (t *Trace) Length() time.Duration { return t.Requests[len(t.Requests)-1].Arrival }

// ReadAnyTrace reads a trace of either format, kvtuner's or Mooncake's, which its
// first line tells.
func ReadAnyTrace(r io.Reader) (*Trace, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, _ := b.Peek(1 << 16) // a reader that fails will again
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.Contains(first, []byte(`"hash_ids"`)) || bytes.Contains(first, []byte(`"timestamp"`)) {
		return ReadMooncake(b)
	}
	return ReadTrace(b)
}

// prefixes is how many there are.
func (t *Trace) prefixes() int {
	n := 0
	for _, q := range t.Requests {
		n = max(n, q.Prefix+1)
	}
	return n
}

func (t *Trace) longest() int {
	n := 0
	for _, q := range t.Requests {
		n = max(n, q.PrefixTokens+q.NewTokens+q.OutputTokens)
	}
	return n
}

func (w Workload) validateTrace() error {
	if w.Streams != 0 || len(w.Prefixes) > 0 || w.Chat != nil || w.Arrivals != (Arrivals{}) {
		return errors.New("trace: excludes streams, arrivals, prefix classes and chat")
	}
	if len(w.Trace.Requests) == 0 {
		return errors.New("trace: has no requests")
	}
	last := time.Duration(0)
	for i, q := range w.Trace.Requests {
		if err := q.validate(last); err != nil {
			return fmt.Errorf("trace: request %d: %w", i+1, err)
		}
		last = q.Arrival
	}
	return nil
}

func (q TraceRequest) validate(last time.Duration) error {
	if q.Arrival < last {
		return fmt.Errorf("arrives at %v, before the request above it at %v; sort by arrival", q.Arrival, last)
	}
	if q.Prefix < 0 || q.Prefix >= maxPrefixes {
		return fmt.Errorf("prefix %d: want 0 to %d", q.Prefix, maxPrefixes-1)
	}
	for _, c := range []struct {
		name       string
		value, low int
	}{{"prefix_tokens", q.PrefixTokens, 0}, {"new_tokens", q.NewTokens, 1}, {"output_tokens", q.OutputTokens, 1}} {
		if c.value < c.low || c.value > maxTraceTokens {
			return fmt.Errorf("%s %d: want %d to %d", c.name, c.value, c.low, maxTraceTokens)
		}
	}
	return nil
}

// tracedDemand is what the next request of the trace asks for.
func (f *Fleet) tracedDemand() demand {
	q := f.workload.Trace.Requests[f.traced]
	f.traced++
	return demand{
		prefix: f.traceIDs[q.Prefix],
		shared: int32(q.PrefixTokens),
		prompt: int32(q.PrefixTokens + q.NewTokens),
		output: int32(q.OutputTokens),
	}
}

// traceLine is a line of a trace file.
type traceLine struct {
	Arrival  *float64        `json:"arrival_s"`
	PrefixID json.RawMessage `json:"prefix_id"`
	Prefix   *int            `json:"prefix_tokens"`
	New      *int            `json:"new_tokens"`
	Output   *int            `json:"output_tokens"`
}

// ReadTrace reads a trace file: JSON Lines, one request a line, sorted by
// arrival, with all of the fields arrival_s (seconds since the start),
// prefix_id (text or a whole number), prefix_tokens, new_tokens and
// output_tokens, and no others. Errors name the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	b := traceBuilder{ids: make(map[string]int)}
	if err := readLines(r, b.line); err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	return b.trace()
}

// traceBuilder collects the requests of a file.
type traceBuilder struct {
	requests []TraceRequest
	ids      map[string]int
	last     time.Duration
}

func (b *traceBuilder) line(text []byte) error {
	var l traceLine
	if err := decodeStrictly(text, &l); err != nil {
		return fmt.Errorf("%w; a line of kvtuner's format is {\"arrival_s\": 0.25, \"prefix_id\": \"a\", \"prefix_tokens\": 4096, \"new_tokens\": 210, \"output_tokens\": 64}", err)
	}
	id, err := prefixID(l.PrefixID)
	if err != nil {
		return err
	}
	if l.Arrival == nil || l.Prefix == nil || l.New == nil || l.Output == nil {
		return errors.New("want all of arrival_s, prefix_id, prefix_tokens, new_tokens, output_tokens")
	}
	at, err := arrival("arrival_s", *l.Arrival, 1)
	if err != nil {
		return err
	}
	n, known := b.ids[id]
	if !known {
		n = len(b.ids)
		b.ids[id] = n
	}
	return b.add(TraceRequest{Arrival: at, Prefix: n, PrefixTokens: *l.Prefix, NewTokens: *l.New, OutputTokens: *l.Output})
}

func (b *traceBuilder) add(q TraceRequest) error {
	if err := q.validate(b.last); err != nil {
		return err
	}
	b.last = q.Arrival
	b.requests = append(b.requests, q)
	return nil
}

func (b *traceBuilder) trace() (*Trace, error) {
	if len(b.requests) == 0 {
		return nil, errors.New("read trace: it has no requests")
	}
	return &Trace{Requests: b.requests}, nil
}

// prefixID takes a string or a whole number.
func prefixID(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return "s" + text, nil
	}
	var number int64
	if len(raw) > 0 && string(raw) != "null" && json.Unmarshal(raw, &number) == nil {
		return fmt.Sprint("n", number), nil
	}
	return "", fmt.Errorf("prefix_id %s: want text or a whole number", raw)
}

// arrival converts a time of a file.
func arrival(name string, v, unitsPerSecond float64) (time.Duration, error) {
	s := v / unitsPerSecond
	if !(s >= 0 && s <= maxTraceSeconds) {
		return 0, fmt.Errorf("%s %v: want 0 to %v", name, v, maxTraceSeconds*unitsPerSecond)
	}
	return time.Duration(math.Round(s * 1e9)), nil
}

// readLines hands each line to a function and adds the line's number to what it
// has to complain about.
func readLines(r io.Reader, line func([]byte) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxTraceLine)
	n := 0
	for in.Scan() {
		n++
		if err := line(in.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	err := in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("is longer than %d MiB; want one request a line", maxTraceLine>>20)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// decodeStrictly wants one JSON object without unknown fields.
func decodeStrictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return inPlainWords(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// inPlainWords says without Go's types what is wrong with JSON.
func inPlainWords(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("is empty; want one JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("ends in the middle of its JSON object")
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("a JSON %s; want one JSON object", wrong.Value)
	case errors.As(err, &wrong) && wrong.Type.Kind() == reflect.Float64:
		return fmt.Errorf("%s: a JSON %s; want a number", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: a JSON %s; want whole numbers", wrong.Field, wrong.Value)
	}
	return err
}
