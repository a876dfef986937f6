package fleet

import (
	"math"
	"testing"
	"time"
)

func TestHeavyTails(t *testing.T) {
	for name, c := range map[string]struct {
		quantile func(float64) float64
		median   float64
	}{
		"lognormal": {Lognormal(2048, 1.2), 2048},
		"pareto":    {Pareto(512, 1.1), 512 * math.Pow(2, 1/1.1)},
	} {
		mix := HeavyTail{Quantile: c.quantile, Classes: 101, Prefixes: 10, Block: 64, Longest: 32768}.Mix()
		weight, count := 0.0, 0
		for i, k := range mix {
			if k.Tokens%64 != 0 || k.Tokens < 64 || k.Tokens > 32768 || i > 0 && k.Tokens <= mix[i-1].Tokens {
				t.Errorf("%s: class of %d tokens", name, k.Tokens)
			}
			if weight < 50.5 && weight+k.Weight >= 50.5 && math.Abs(float64(k.Tokens)-c.median) > 64 {
				t.Errorf("%s: median %d; want about %.0f", name, k.Tokens, c.median)
			}
			weight += k.Weight
			count += k.Count
		}
		if weight != 101 || count != 1010 {
			t.Errorf("%s: weight %v, %d prefixes; want 101 and 1010", name, weight, count)
		}
	}
}

func TestZipf(t *testing.T) {
	w := publishedWorkload(PrefixClass{Tokens: 1024, Weight: 1, Count: 100})
	w.Zipf = 1
	var table prefixTable
	m := newPrefixMix(&table, w)
	r := newRandom(1, 1)
	drawn := make([]float64, 100)
	for range 100000 {
		drawn[m.draw(r)]++
	}
	for k, want := range map[int]float64{0: 1, 1: 0.5, 9: 0.1} {
		if got := drawn[k] / drawn[0]; math.Abs(got-want) > 0.1*want {
			t.Errorf("prefix %d asked for %.3f times as often as the first; want %v", k, got, want)
		}
	}
	if drawn[99] == 0 {
		t.Error("the rarest was never drawn")
	}
}

func TestPopularPrefixesAreHitMore(t *testing.T) {
	hits := func(exponent float64) float64 {
		s, err := ByName("zipf-c64")
		if err != nil {
			t.Fatal(err)
		}
		s.Workload.Zipf = exponent
		f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}})
		if err != nil {
			t.Fatal(err)
		}
		f.Advance(30 * time.Second)
		return f.Stats().GPUHitShare
	}
	if even, skewed := hits(0), hits(1); skewed < even+0.2 {
		t.Errorf("GPU hit share %.2f with equal popularity, %.2f with Zipf", even, skewed)
	}
}

func TestPoissonServesDemandWithItsVariance(t *testing.T) {
	f := start(t, "4k-poisson", recompute, 1)
	f.Advance(1000 * time.Second)
	if got := f.Stats().RequestsPerSecond; math.Abs(got-9) > 0.3 {
		t.Errorf("%.2f requests/s; want the demand, 9", got)
	}
	a := Poisson(5)
	if err := a.validate(); err != nil || a.rate(3*second) != 5 || a.rate(90000*second) != 5 {
		t.Errorf("rate %v then %v, %v; want 5 always", a.rate(3*second), a.rate(90000*second), err)
	}
}

func TestThinkingClientsAskLess(t *testing.T) {
	s, _ := ByName("1k-c16")
	s.Workload.Think = 10 * time.Second
	f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(1000 * time.Second)
	got := f.Stats()
	if want := 16 / (10 + got.E2EMean); math.Abs(got.RequestsPerSecond/want-1) > 0.08 {
		t.Errorf("%.2f requests/s; want %.2f", got.RequestsPerSecond, want)
	}
	change(t, f, "1k-c4")
	f.Advance(200 * time.Second)
	if n := f.requests.inFlight(); n != 4 {
		t.Errorf("%d requests in flight; want the 4 streams left", n)
	}
}
