package store

import "time"

// InForce returns the parameters that endpoint runs at now, and the arm they
// are of: the candidate while an unexpired trial covers the endpoint, else the
// baseline. It does not allocate.
//
// Only the end of a trial is checked against the clock: a reader whose clock is
// behind must not run the baseline in a block that is counted as the
// candidate's.
func (d *Document) InForce(endpoint string, now time.Time) (Params, Arm) {
	if d.Trial == nil || d.Trial.Expired(now) || !d.Trial.Covers(endpoint) {
		return d.Baseline, ArmBaseline
	}
	return d.Trial.Candidate, ArmCandidate
}

// Expired says whether the trial is over at now. The instant ExpiresAt itself
// is over.
func (t *Trial) Expired(now time.Time) bool { return !now.Before(t.ExpiresAt) }

// Covers says whether the assignment gives the candidate to endpoint, whatever
// the time. For AssignSubset, an endpoint is covered if its hash, as a fraction
// of 2^64, is below Share; Swapped covers exactly the others.
//
// The hash is part of the document's contract: 64-bit FNV-1a over the bytes of
// the endpoint's name, started from offset basis XOR mix(Seed), finished with
// mix, where mix is the 64-bit finalizer of MurmurHash3. Each endpoint is drawn
// by itself, so that the rest stay put when one comes or goes; of few endpoints
// the covered share can be far from Share, and a seed can be chosen that makes
// it fit.
func (t *Trial) Covers(endpoint string) bool {
	switch a := t.Assignment; a.Mode {
	case AssignAll:
		return true
	case AssignSubset:
		return (fraction(hash(a.Seed, endpoint)) < a.Share) != a.Swapped
	default:
		return false
	}
}

// Constants of 64-bit FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func hash(seed uint64, s string) uint64 {
	h := fnvOffset ^ mix(seed)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return mix(h)
}

// mix is fmix64 of MurmurHash3: FNV-1a alone leaves the upper bits of short,
// similar names correlated.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// fraction maps the upper 53 bits of h, which a float64 holds exactly, to
// [0, 1).
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }
