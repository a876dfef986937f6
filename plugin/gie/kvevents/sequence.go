package kvevents

// memory is how many messages back a repetition is told from a restart.
const memory = 256

// verdict is where a message stands in the sequence.
type verdict uint8

const (
	inOrder  verdict = iota
	repeated         // applied before
	ahead            // messages before it are missing
	behind           // not one of those applied: another history
)

// sequence follows the numbers of one engine's messages. An engine that
// restarts begins again at 0, so that a number alone does not say whether a
// message is old or new: digests of those applied do.
type sequence struct {
	first, next uint64
	begun       bool
	digests     [memory]uint64
}

// begin starts a history at a number.
func (s *sequence) begin(number uint64) {
	*s = sequence{first: number, next: number, begun: true}
}

func (s *sequence) judge(number, digest uint64) verdict {
	switch {
	case number == s.next:
		return inOrder
	case number > s.next:
		return ahead
	case number >= s.first && s.next-number <= memory && s.digests[number%memory] == digest:
		return repeated
	default:
		return behind
	}
}

// applied notes the message in order.
func (s *sequence) applied(digest uint64) {
	s.digests[s.next%memory] = digest
	s.next++
}

// last is the number of the last message applied.
func (s *sequence) last() (number uint64, ok bool) {
	return s.next - 1, s.begun && s.next > s.first
}
