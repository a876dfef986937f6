package bench

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// made is a result with everything a table can show.
func made() Result {
	nan := Number(math.NaN())
	row := func(at Place, policy, pair string, seed uint64, e2e float64, efficiency float64) Row {
		e := Number(efficiency)
		r := Row{Place: at, Policy: policy, Pair: pair, Seed: seed, Duration: 1800, Requests: 17642,
			RequestsPerS: Number(36 / e2e), OutputTokensPerS: Number(128 * 36 / e2e), TTFTMean: Number(e2e / 12), TTFTP50: 0.2,
			TTFTP99: Number(e2e / 2), ITLMean: 0.03, E2EMean: Number(e2e), WaitingMean: 2.5, ExternalPromptShare: 0.291,
			Efficiency: &e}
		if policy == "tuned" {
			r.Moves, r.Trials, r.Aborted = 1, int(seed)+1, 1
		}
		if at.Phase == 0 {
			r.TTFTP50, r.TTFTP99, r.ExternalPromptShare = nan, nan, nan
		}
		return r
	}
	var r Result
	for _, at := range []Place{{"8k-c32-slow-storage", "day", 1}, {"", "day", 0}} {
		for _, p := range []struct {
			policy, pair string
			e2e          float64
		}{{"static:1024+8", "", 4}, {"tuned", "", 3.5}, {"best-static", "8192+16", 3.4}, {"load", "", 21.25}} {
			for seed := uint64(1); seed <= 3; seed++ {
				e2e := p.e2e + 0.02*float64(seed)
				r.Rows = append(r.Rows, row(at, p.policy, p.pair, seed, e2e, 3.4/e2e))
			}
		}
	}
	r.Summary = summarise(r.Rows, DefaultReference)
	return r
}

func golden(t *testing.T, name string, write func(io.Writer, Result) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, made()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run with UPDATE_GOLDEN=1 to write it", err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	return b.String()
}

func TestTable(t *testing.T) {
	for _, line := range strings.Split(golden(t, "table.txt", WriteTable), "\n") {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestCSV(t *testing.T) { golden(t, "rows.csv", WriteCSV) }

func TestUnknownFormat(t *testing.T) {
	_, err := Writer("xml")
	mention(t, err, []string{`"xml"`, "table, json, csv"})
}
