package fleet

import "math"

const gib = 1 << 30

// storage is the node's NVMe: a backlog of writes fed by every engine's stores
// and drained at the device's bandwidth.
type storage struct {
	backlog  float64 // bytes outstanding at updated
	updated  instant
	drain    float64 // bytes a second
	limit    float64 // bytes; writes beyond are dropped
	written  float64 // bytes drained so far
	writing  float64 // seconds that took, whatever the bandwidth was
	dropped  float64 // bytes refused so far
	lookups  int     // outstanding on the node
	readFree instant // when the last read ends
}

func (s *storage) configure(p *Profile) {
	s.drain = p.WriteGiBps * gib
	s.limit = p.WriteBacklogGiB * gib
	s.backlog = math.Min(s.backlog, s.limit)
}

func (s *storage) advance(now instant) {
	done := math.Min(s.backlog, s.drain*(now-s.updated).seconds())
	s.backlog -= done
	s.written += done
	s.writing += done / s.drain
	s.updated = now
}

// write queues bytes.
func (s *storage) write(now instant, bytes float64) {
	s.advance(now)
	accepted := math.Min(bytes, s.limit-s.backlog)
	s.backlog += accepted
	s.dropped += bytes - accepted
}

// saturation is the backlog as a share of its limit, 0 to 1.
func (s *storage) saturation(now instant) float64 {
	s.advance(now)
	return s.backlog / s.limit
}
