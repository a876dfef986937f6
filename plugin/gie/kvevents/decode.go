package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

type kind uint8

const (
	unknownEvent kind = iota
	blockStored
	blockRemoved
	allBlocksCleared
)

// event is one event of a batch. Its slices are views of the message, msgpack
// arrays of which only the framing has been checked.
type event struct {
	kind      kind
	hashes    []byte
	tokens    []byte
	extra     []byte // nil: the engine says nothing of extra keys
	parent    uint64
	hasParent bool
	blockSize int
	group     int // -1: the engine has no groups
	medium    []byte
	adapter   []byte
	spec      []byte
}

// Field names of vLLM's kv_events.py, in the order of its array encoding. Later
// fields (sliding window, locality, ownership) are not needed; neither
// is the number of the LoRA adapter, which its name replaced.
var (
	batchFields   = []string{"ts", "events"}
	storedFields  = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
	removedFields = []string{"block_hashes", "medium", "group_idx"}
)

var errShape = errors.New("neither an array nor a map")

// maxInt bounds the small numbers of an event: block size and group.
const maxInt = 1 << 16

// decode calls yield for each event of a message, in order. vLLM encodes batches
// and events as arrays, recent versions as maps; either may have fields that are
// not known here. The event is only valid during the call.
func decode(message []byte, yield func(*event) error) error {
	var events []byte
	rest, err := fields(message, batchFields, func(name string, raw []byte) error {
		if name == "events" {
			events = raw
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("batch: %d bytes too many", len(rest))
	}
	n, events, err := msgp.ReadArrayHeaderBytes(events)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	for i := range n {
		var e event
		if events, err = e.decode(events); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if err := yield(&e); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return nil
}

func (e *event) decode(b []byte) ([]byte, error) {
	e.group = -1
	if msgp.NextType(b) == msgp.MapType {
		rest, err := fields(b, nil, e.set)
		if err != nil {
			return nil, err
		}
		return rest, e.check()
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("no tag")
	}
	tag, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return nil, fmt.Errorf("tag: %w", err)
	}
	e.setKind(tag)
	if b, err = elements(b, n-1, e.order(), e.set); err != nil {
		return nil, err
	}
	return b, e.check()
}

func (e *event) setKind(tag []byte) {
	switch string(tag) {
	case "BlockStored":
		e.kind = blockStored
	case "BlockRemoved":
		e.kind = blockRemoved
	case "AllBlocksCleared":
		e.kind = allBlocksCleared
	}
}

func (e *event) order() []string {
	switch e.kind {
	case blockStored:
		return storedFields
	case blockRemoved:
		return removedFields
	default:
		return nil
	}
}

// set takes one field. Null is as good as absent.
func (e *event) set(name string, raw []byte) (err error) {
	if msgp.NextType(raw) == msgp.NilType {
		return nil
	}
	switch name {
	case "type":
		var tag []byte
		if tag, _, err = msgp.ReadStringZC(raw); err == nil {
			e.setKind(tag)
		}
	case "block_hashes":
		e.hashes = raw
	case "token_ids":
		e.tokens = raw
	case "extra_keys":
		e.extra = raw
	case "parent_block_hash":
		e.parent, _, err = readHash(raw)
		e.hasParent = true
	case "block_size":
		e.blockSize, err = readInt(raw)
	case "group_idx":
		e.group, err = readInt(raw)
	case "medium":
		e.medium, _, err = msgp.ReadStringZC(raw)
	case "lora_name":
		e.adapter, _, err = msgp.ReadStringZC(raw)
	case "kv_cache_spec_kind":
		e.spec, _, err = msgp.ReadStringZC(raw)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (e *event) check() error {
	if (e.kind == blockStored || e.kind == blockRemoved) && e.hashes == nil {
		return errors.New("block_hashes: missing")
	}
	return nil
}

// fields splits a struct, which is an array in the given order or a map by name.
func fields(b []byte, order []string, set func(string, []byte) error) ([]byte, error) {
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return nil, err
		}
		return elements(b, n, order, set)
	case msgp.MapType:
		n, b, err := msgp.ReadMapHeaderBytes(b)
		if err != nil {
			return nil, err
		}
		return entries(b, n, set)
	default:
		return nil, errShape
	}
}

func elements(b []byte, n uint32, order []string, set func(string, []byte) error) ([]byte, error) {
	for i := range n {
		rest, err := msgp.Skip(b)
		if err != nil {
			return nil, err
		}
		if int(i) < len(order) {
			if err := set(order[i], b[:len(b)-len(rest)]); err != nil {
				return nil, err
			}
		}
		b = rest
	}
	return b, nil
}

func entries(b []byte, n uint32, set func(string, []byte) error) ([]byte, error) {
	for range n {
		name, value, err := msgp.ReadStringZC(b)
		if err != nil {
			return nil, err
		}
		rest, err := msgp.Skip(value)
		if err != nil {
			return nil, err
		}
		if err := set(string(name), value[:len(value)-len(rest)]); err != nil {
			return nil, err
		}
		b = rest
	}
	return b, nil
}

// readHash reads an engine's block hash: an integer, or bytes of which the last
// eight count, as in vLLM's own conversion of bytes to integers.
func readHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(i), rest, err
	case msgp.BinType:
		raw, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return 0, nil, err
		}
		if len(raw) == 0 {
			return 0, nil, errors.New("empty hash")
		}
		var last [8]byte
		tail := raw[max(0, len(raw)-8):]
		copy(last[8-len(tail):], tail)
		return binary.BigEndian.Uint64(last[:]), rest, nil
	default:
		return msgp.ReadUint64Bytes(b)
	}
}

func readInt(b []byte) (int, error) {
	i, _, err := msgp.ReadInt64Bytes(b)
	if err != nil {
		return 0, err
	}
	if i < 0 || i > maxInt {
		return 0, fmt.Errorf("%d is not between 0 and %d", i, maxInt)
	}
	return int(i), nil
}
