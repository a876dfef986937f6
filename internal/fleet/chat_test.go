package fleet

import (
	"testing"
	"time"
)

func TestConversationsGrow(t *testing.T) {
	s, err := ByName("chat-c256")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	turns, fresh, longest := 0, 0, int32(0)
	said := make([]int32, s.Workload.Streams)
	serials := make([]uint64, s.Workload.Streams)
	for range 3000 {
		f.Advance(50 * time.Millisecond)
		for _, q := range f.requests.all {
			if q.serial == 0 || q.serial == serials[q.stream] {
				continue
			}
			serials[q.stream] = q.serial
			turns++
			longest = max(longest, q.promptTokens+q.outputTokens)
			want := said[q.stream] + 256
			if q.prefixBlocks == 0 {
				fresh++
				want = 4096 + 256
			}
			if q.promptTokens != want || q.prefixBlocks*64 > q.promptTokens {
				t.Fatalf("stream %d: prompt of %d tokens, prefix of %d blocks, after %d tokens", q.stream, q.promptTokens, q.prefixBlocks, said[q.stream])
			}
			said[q.stream] = q.promptTokens + q.outputTokens
		}
	}
	if fresh < 256 || turns < 2*fresh || longest > 16384 {
		t.Errorf("%d turns in %d conversations, up to %d tokens", turns, fresh, longest)
	}
	if f.Stats().GPUHitShare < 0.2 {
		t.Errorf("GPU hit share %.2f; a conversation should find its past", f.Stats().GPUHitShare)
	}
	quiet(t, f)
	checkIdle(t, f)
}

// With nothing evicted, all of a conversation's past but its last block is found.
func TestConversationFindsItsPast(t *testing.T) {
	s := Scenario{Name: "one", Profile: Published(), Workload: Workload{
		NewTokens: 100, OutputTokens: 60, Streams: 1, Chat: &Chat{Turns: 1e9, MaxTokens: 100000},
	}}
	f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	hits, prompt := 0.0, 0.0
	said := int32(0)
	for range f.Stats().Requests {
		hits += float64(said / 64 * 64)
		prompt += float64(said + 100)
		said += 160
	}
	if got := f.Stats().GPUHitShare; got < hits/prompt-0.05 || got > hits/prompt+0.05 {
		t.Errorf("GPU hit share %.3f over %d turns; want %.3f", got, f.Stats().Requests, hits/prompt)
	}
}

func TestForgottenConversationsAreNotFound(t *testing.T) {
	s := Scenario{Name: "short", Profile: Published(), Workload: Workload{
		NewTokens: 256, OutputTokens: 128, Streams: 8, Chat: &Chat{Turns: 1, OpeningTokens: 1024, MaxTokens: 4096},
	}}
	f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	if got := f.Stats(); got.GPUHitShare != 0 || got.ExternalPromptShare != 0 || got.Requests == 0 {
		t.Errorf("one-turn conversations found %.2f and %.2f of their prompts", got.GPUHitShare, got.ExternalPromptShare)
	}
	if n := len(f.prefixes.tokens); n != 8 {
		t.Errorf("%d prefixes for 8 streams", n)
	}
	for i := range f.replicas {
		if n := len(f.replicas[i].cpu.nodes); n > 20000 {
			t.Errorf("%d nodes in the CPU tier", n)
		}
	}
}
