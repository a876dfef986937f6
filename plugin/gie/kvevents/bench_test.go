package kvevents

import (
	"fmt"
	"testing"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
)

const benchBlock = 16

// benchPrompt is a prompt of n tokens.
func benchPrompt(seed, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32((seed*7919+i*31)%150_000 + 1)
	}
	return tokens
}

// benchStored is the event of storing all blocks of a prompt, with 32-byte
// hashes as integers.
func benchStored(medium string, seed int, tokens []uint32) testEvent {
	e := stored(medium, nil, nil, tokens...)
	e.size = benchBlock
	for i := range len(tokens) / benchBlock {
		e.hashes = append(e.hashes, uint64(seed+1)<<40|uint64(i)<<8|1<<63)
	}
	return e
}

// BenchmarkApply takes in messages of one event: 32 blocks of 16 tokens, stored
// and then removed.
func BenchmarkApply(b *testing.B) {
	x := testIndex(b, "")
	const prompts, blocks = 64, 32
	var messages [][]byte
	for seed := range prompts {
		e := benchStored("GPU", seed, benchPrompt(seed, blocks*benchBlock))
		messages = append(messages, batch(1, e), batch(2, removed("GPU", e.hashes...)))
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := decode(messages[n%len(messages)], x.apply); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)*blocks/b.Elapsed().Seconds(), "blocks/s")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkMatch asks one endpoint for a prompt of 8192 tokens, in an index of
// 100,000 blocks.
func BenchmarkMatch(b *testing.B) {
	for _, held := range []int{0, 4096, 8192} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			x := testIndex(b, "")
			for seed := range 100_000 / 512 {
				x.take(b, benchStored("GPU", seed+1, benchPrompt(seed+1, 8192)))
			}
			prompt := benchPrompt(0, 8192)
			if held > 0 {
				x.take(b, benchStored("GPU", 0, prompt[:held]), benchStored("CPU", 0, prompt[:held/2]))
			}
			b.ReportAllocs()
			for b.Loop() {
				m, _, _ := x.match(&chains{prompt: &Prompt{Tokens: prompt}})
				if m.ByTier["gpu"] != held/benchBlock {
					b.Fatal(m)
				}
			}
		})
	}
}

// BenchmarkPrepareRequestData publishes a request of 8192 token IDs to 8
// endpoints, of which one holds it all.
func BenchmarkPrepareRequestData(b *testing.B) {
	p := testProducer(b, "", nil)
	prompt := benchPrompt(0, 8192)
	ids := make([]any, len(prompt))
	for i, t := range prompt {
		ids[i] = float64(t)
	}
	r := &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{Payload: scheduling.PayloadMap{"prompt": ids}}}
	var endpoints []scheduling.Endpoint
	for i := range 8 {
		name := fmt.Sprint("pod", i)
		endpoints = append(endpoints, scheduling.NewEndpoint(metadata(name, "127.0.0.1"), nil, nil))
		p.pretend(name).index.take(b, benchStored("GPU", i, benchPrompt(i, 8192)), benchStored("CPU", i, benchPrompt(i, 8192)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.PrepareRequestData(b.Context(), r, endpoints); err != nil {
			b.Fatal(err)
		}
	}
}
