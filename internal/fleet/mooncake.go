package fleet

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// mooncakeBlock is the tokens a hash of a Mooncake trace stands for.
const mooncakeBlock = 512

// mooncakeLine is a line of the public Mooncake traces.
type mooncakeLine struct {
	Timestamp *float64 `json:"timestamp"`
	Input     *int     `json:"input_length"`
	Output    *int     `json:"output_length"`
	Hashes    []int64  `json:"hash_ids"`
}

// ReadMooncake reads a trace in the format of the public Mooncake traces: JSON
// Lines with timestamp (milliseconds), input_length, output_length (tokens; 0
// counts as 1) and hash_ids, one for each 512 tokens of input, where equal ids
// at the start of two prompts are equal text.
//
// The leading ids form a tree; the model knows prefixes that are shared from
// their start. So the tree is cut into chains: at each fork the child most
// requests go through continues its parent's chain, and the others begin a
// chain of their own, which repeats the text before the fork. A request's
// prefix is as much of its prompt as any other request shares. Reuse across a
// fork is therefore not counted, all other is.
func ReadMooncake(r io.Reader) (*Trace, error) {
	m := mooncake{nodes: []mooncakeNode{{heavy: -1, chain: -1}}, edges: make(map[mooncakeEdge]int)}
	if err := readLines(r, m.line); err != nil {
		return nil, fmt.Errorf("read Mooncake trace: %w", err)
	}
	return m.trace()
}

// mooncake is a trace as a tree of hash ids; node 0 is the root.
type mooncake struct {
	requests []mooncakeRequest
	nodes    []mooncakeNode
	edges    map[mooncakeEdge]int
}

type mooncakeRequest struct {
	at            time.Duration
	input, output int
	path          []int
}

type mooncakeNode struct {
	uses  int // requests through it
	heavy int // the child most of them go through; the first of equals
	chain int // -1: not yet on any
}

type mooncakeEdge struct {
	parent int
	hash   int64
}

func (m *mooncake) line(text []byte) error {
	var l mooncakeLine
	if err := decodeStrictly(text, &l); err != nil {
		return err
	}
	if l.Timestamp == nil || l.Input == nil || l.Output == nil || l.Hashes == nil {
		return errors.New("want all of timestamp, input_length, output_length, hash_ids")
	}
	at, err := arrival("timestamp", *l.Timestamp, 1000)
	if err != nil {
		return err
	}
	if n := len(m.requests); n > 0 && at < m.requests[n-1].at {
		return fmt.Errorf("timestamp %v: before that of the line above; sort by timestamp", *l.Timestamp)
	}
	if *l.Input < 1 || *l.Input > maxTraceTokens || *l.Output < 0 || *l.Output > maxTraceTokens {
		return fmt.Errorf("input_length %d, output_length %d: want 1 and 0 to %d", *l.Input, *l.Output, maxTraceTokens)
	}
	if most := (*l.Input + mooncakeBlock - 1) / mooncakeBlock; len(l.Hashes) > most {
		return fmt.Errorf("hash_ids: %d for an input of %d tokens; want at most %d, one for %d tokens", len(l.Hashes), *l.Input, most, mooncakeBlock)
	}
	m.requests = append(m.requests, mooncakeRequest{at, *l.Input, max(1, *l.Output), m.walk(l.Hashes)})
	return nil
}

// walk counts a request through the tree.
func (m *mooncake) walk(hashes []int64) []int {
	path := make([]int, 0, len(hashes))
	at := 0
	for _, h := range hashes {
		edge := mooncakeEdge{at, h}
		child, ok := m.edges[edge]
		if !ok {
			child = len(m.nodes)
			m.nodes = append(m.nodes, mooncakeNode{heavy: -1, chain: -1})
			m.edges[edge] = child
		}
		m.nodes[child].uses++
		path = append(path, child)
		at = child
	}
	return path
}

func (m *mooncake) trace() (*Trace, error) {
	m.findHeavy()
	b := traceBuilder{}
	chains := 0
	for _, q := range m.requests {
		at, shared := 0, 0
		for depth, node := range q.path {
			if m.nodes[node].uses < 2 {
				break
			}
			if m.nodes[node].chain < 0 {
				if at == 0 || m.nodes[at].heavy != node {
					m.nodes[node].chain = chains
					chains++
				} else {
					m.nodes[node].chain = m.nodes[at].chain
				}
			}
			at, shared = node, depth+1
		}
		r := TraceRequest{Arrival: q.at, PrefixTokens: min(shared*mooncakeBlock, q.input-1), OutputTokens: q.output}
		r.NewTokens = q.input - r.PrefixTokens
		if at == 0 {
			r.Prefix, chains = chains, chains+1
		} else {
			r.Prefix = m.nodes[at].chain
		}
		b.requests = append(b.requests, r)
	}
	return b.trace()
}

// findHeavy marks each node's most used child: walking the requests in order,
// the first of equals stays.
func (m *mooncake) findHeavy() {
	for _, q := range m.requests {
		at := 0
		for _, node := range q.path {
			if h := m.nodes[at].heavy; h < 0 || m.nodes[node].uses > m.nodes[h].uses {
				m.nodes[at].heavy = node
			}
			at = node
		}
	}
}
