package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/bbolt"
)

// poolHistory is the part of the database that is one pool's. The sequence of
// byID is the number of decisions; counting them would read them all.
type poolHistory struct {
	byTime, byID *bbolt.Bucket
}

func createPool(tx *bbolt.Tx, pool string) (*poolHistory, error) {
	b, err := tx.Bucket(bucketDecisions).CreateBucketIfNotExists([]byte(pool))
	if err != nil {
		return nil, err
	}
	byTime, err := b.CreateBucketIfNotExists(bucketByTime)
	if err != nil {
		return nil, err
	}
	byID, err := b.CreateBucketIfNotExists(bucketByID)
	if err != nil {
		return nil, err
	}
	return &poolHistory{byTime: byTime, byID: byID}, nil
}

// pools yields every pool in the order of names.
func pools(tx *bbolt.Tx) iter.Seq2[string, *poolHistory] {
	return func(yield func(string, *poolHistory) bool) {
		root := tx.Bucket(bucketDecisions)
		if root == nil {
			return
		}
		c := root.Cursor()
		for name, _ := c.First(); name != nil; name, _ = c.Next() {
			b := root.Bucket(name)
			if !yield(string(name), &poolHistory{byTime: b.Bucket(bucketByTime), byID: b.Bucket(bucketByID)}) {
				return
			}
		}
	}
}

func (p *poolHistory) put(d Decision, value []byte) error {
	key := append(timeKey(d.Time), d.ID...)
	if err := p.byTime.Put(key, value); err != nil {
		return err
	}
	if err := p.byID.Put([]byte(d.ID), key); err != nil {
		return err
	}
	return p.byID.SetSequence(p.byID.Sequence() + 1)
}

// prune drops the oldest decisions beyond limit, and all before oldest.
func (p *poolHistory) prune(limit int, oldest time.Time) error {
	c := p.byTime.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.First() {
		if p.byID.Sequence() <= uint64(limit) && bytes.Compare(key, timeKey(oldest)) >= 0 {
			return nil
		}
		if err := p.byID.Delete(key[timeKeyBytes:]); err != nil {
			return err
		}
		if err := p.byTime.Delete(key); err != nil {
			return err
		}
		if err := p.byID.SetSequence(p.byID.Sequence() - 1); err != nil {
			return err
		}
	}
	return nil
}

const timeKeyBytes = 12

// timeKey sorts as time does: seconds since 1970, then nanoseconds, big-endian.
// Times before 1970 are taken as 1970.
func timeKey(t time.Time) []byte {
	key := make([]byte, timeKeyBytes)
	if t.Unix() < 0 {
		return key
	}
	binary.BigEndian.PutUint64(key, uint64(t.Unix()))
	binary.BigEndian.PutUint32(key[8:], uint32(t.Nanosecond()))
	return key
}

// scan yields decisions between f.Since and f.Until in the wanted order.
func (p *poolHistory) scan(f Filter) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		c := p.byTime.Cursor()
		key, value := f.start(c)
		for key != nil && f.spans(key) {
			d, err := decodeDecision(key, value)
			if !yield(d, err) || err != nil {
				return
			}
			if f.NewestFirst {
				key, value = c.Prev()
			} else {
				key, value = c.Next()
			}
		}
	}
}

// start moves c to the first key in the wanted order.
func (f Filter) start(c *bbolt.Cursor) (key, value []byte) {
	switch {
	case !f.NewestFirst && f.Since.IsZero():
		return c.First()
	case !f.NewestFirst:
		return c.Seek(timeKey(f.Since))
	case f.Until.IsZero():
		return c.Last()
	}
	if key, _ = c.Seek(timeKey(f.Until)); key == nil {
		return c.Last()
	}
	return c.Prev()
}

func (f Filter) spans(key []byte) bool {
	if !f.Since.IsZero() && bytes.Compare(key, timeKey(f.Since)) < 0 {
		return false
	}
	return f.Until.IsZero() || bytes.Compare(key, timeKey(f.Until)) < 0
}

func decodeDecision(key, value []byte) (d Decision, err error) {
	if err := json.Unmarshal(value, &d); err != nil {
		return Decision{}, fmt.Errorf("decision %s is %w: %w", key[min(timeKeyBytes, len(key)):], ErrCorrupt, err)
	}
	return d, nil
}
