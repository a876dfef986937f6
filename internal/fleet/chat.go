package fleet

import (
	"errors"
	"fmt"
)

// Chat is multi-turn conversation: the prefix of a turn is everything said
// before in its conversation, rounded down to blocks, and grows from turn to
// turn. Nobody else asks for it. A fleet starts with all conversations new and
// nothing of them cached.
type Chat struct {
	// Turns is the mean number of turns: after each one the conversation ends
	// with chance 1/Turns, and the stream begins another.
	Turns float64
	// OpeningTokens come before Workload.NewTokens in the first turn, such as a
	// document to talk about.
	OpeningTokens int
	// MaxTokens ends a conversation whose next turn would need more context,
	// output included.
	MaxTokens int
}

func (w Workload) validateChat() error {
	c := w.Chat
	var errs []error
	if len(w.Prefixes) > 0 {
		errs = append(errs, errors.New("chat: excludes prefix classes"))
	}
	if w.Streams == 0 {
		errs = append(errs, errors.New("chat: is closed-loop; streams must be positive"))
	}
	if !(c.Turns >= 1) {
		errs = append(errs, fmt.Errorf("chat: mean turns %v must be at least 1", c.Turns))
	}
	if c.OpeningTokens < 0 {
		errs = append(errs, fmt.Errorf("chat: opening of %d tokens must not be negative", c.OpeningTokens))
	}
	if first := c.OpeningTokens + w.NewTokens + w.OutputTokens; c.MaxTokens < first {
		errs = append(errs, fmt.Errorf("chat: at most %d tokens do not hold a first turn of %d", c.MaxTokens, first))
	}
	return errors.Join(errs...)
}

// nextTurn is what a stream's conversation asks for next.
func (f *Fleet) nextTurn(i int32, serial uint64) demand {
	w, s := &f.workload, &f.streams[i]
	turn := int32(w.NewTokens + w.OutputTokens)
	f.choice.reseed(mix(f.seed, forPrefixes), serial)
	if s.said == 0 || f.choice.chance(1/w.Chat.Turns) || s.said+turn > int32(w.Chat.MaxTokens) {
		f.forget(f.prefixes.conversation(i))
		s.said = 0
	}
	d := demand{prefix: f.prefixes.conversation(i), shared: s.said, output: int32(w.OutputTokens)}
	d.prompt = s.said + int32(w.NewTokens)
	if s.said == 0 {
		d.prompt += int32(w.Chat.OpeningTokens)
	}
	s.said = d.prompt + d.output
	d.kept = s.said
	return d
}

// forget makes what caches hold of a prefix unreachable, as its content will
// not be asked for again.
func (f *Fleet) forget(prefix int32) {
	for i := range f.replicas {
		f.replicas[i].gpu.forget(prefix)
		f.replicas[i].cpu.forget(prefix)
	}
}
