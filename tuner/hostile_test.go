package tuner

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
)

// escapes drive a terminal, begin lines, and turn text around.
const escapes = "a\x1b[2J\x1b]0;owned\x07\r\nlevel=ERROR msg=forged\u202e\u2028\xff"

// hostile are answers of a Prometheus, or of a metrics page behind it, that wants
// to harm its reader.
func hostile() map[string]model.Matrix {
	huge := strings.Repeat("x", 1<<20)
	with := func(name, value string) func(model.Matrix) {
		return func(rows model.Matrix) {
			for _, row := range rows {
				row.Metric[model.LabelName(name)] = model.LabelValue(value)
			}
		}
	}
	values := func(v float64) func(model.Matrix) {
		return func(rows model.Matrix) {
			for _, row := range rows {
				row.Values[len(row.Values)-1].Value = model.SampleValue(v)
			}
		}
	}
	late := func(rows model.Matrix) {
		for _, row := range rows {
			for i := range row.Values {
				row.Values[i].Timestamp -= 3_600_000
			}
		}
	}
	backwards := func(rows model.Matrix) {
		for _, row := range rows {
			row.Values[0].Timestamp = math.MaxInt64
			row.Values[1].Timestamp = math.MinInt64
		}
	}
	answers := map[string]model.Matrix{"nil rows' values": {{Metric: model.Metric{}}, {Metric: nil, Values: []model.SamplePair{{}}}}}
	for name, change := range map[string][]func(model.Matrix){
		"huge names":              {with("pod", huge)},
		"huge names gone dark":    {with("pod", huge), late},
		"escapes gone dark":       {with("pod", escapes), late},
		"escapes in a name":       {with("pod", escapes), values(math.NaN())},
		"escapes for buckets":     {with(labelReusable, escapes), with(labelComputed, huge)},
		"escapes for reasons":     {with(labelReason, escapes), with(labelAction, escapes)},
		"not a number":            {values(math.NaN())},
		"infinite":                {values(math.Inf(1))},
		"far below zero":          {values(-math.MaxFloat64)},
		"as large as can be":      {values(math.MaxFloat64)},
		"almost nothing":          {values(math.SmallestNonzeroFloat64)},
		"times in disorder":       {backwards},
		"a bucket of 2^63 tokens": {with(labelReusable, "9223372036854775808")},
	} {
		rows := append(engine("a"), epp("x", 0, 0, 0)...)
		for _, do := range change {
			do(rows)
		}
		answers[name] = rows
	}
	answers["many engines"] = many(func(i int) model.Matrix { return engine(fmt.Sprint(i)) }, 500)
	answers["many series of one engine"] = append(engine("a"), many(func(i int) model.Matrix {
		return model.Matrix{series(seriesE2ECount, "a", map[string]string{"id": fmt.Sprint(i)}, 0, 1, 2)}
	}, 20_000)...)
	answers["many buckets"] = append(epp("x", 0, 0, 0), many(func(i int) model.Matrix {
		return model.Matrix{series(seriesCostStarted, "x", map[string]string{labelAction: "load", labelReusable: fmt.Sprint(i)}, 0, 1, 2)}
	}, 20_000)...)
	return answers
}

func many(make func(i int) model.Matrix, n int) (rows model.Matrix) {
	for i := range n {
		rows = append(rows, make(i)...)
	}
	return rows
}

// hostileAfter is a fixture that turns hostile.
type hostileAfter struct {
	*fixture
	rows model.Matrix // nil while it is not
}

func (h *hostileAfter) Query(ctx context.Context, q string, at time.Time, opts ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	if h.rows == nil {
		return h.fixture.Query(ctx, q, at, opts...)
	}
	shift := model.Time(at.Sub(noon).Milliseconds())
	rows := model.Matrix{}
	for _, row := range h.rows {
		if strings.HasPrefix(string(row.Metric[model.MetricNameLabel]), "vllm:") != strings.Contains(q, "vllm:") {
			continue
		}
		moved := &model.SampleStream{Metric: row.Metric}
		for _, v := range row.Values {
			moved.Values = append(moved.Values, model.SamplePair{Timestamp: v.Timestamp + shift, Value: v.Value})
		}
		rows = append(rows, moved)
	}
	return rows, nil, nil, nil
}

// TestHostileAnswers: whatever Prometheus says, the tuner goes on, moves nothing on
// it, and passes on no text that could forge a line or drive a terminal, nor much of
// it; and its records can be kept.
func TestHostileAnswers(t *testing.T) {
	for name, rows := range hostile() {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			h := &hostileAfter{fixture: f}
			var log bytes.Buffer
			f.registry = prometheus.NewRegistry()
			var err error
			f.tuner, err = New(Options{Settings: testSettings(), Prometheus: h, QueryTimeout: time.Second, Documents: f.docs,
				Journal: f.journal, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: f.registry})
			if err != nil {
				t.Fatal(err)
			}
			f.steps(4)
			before, _ := f.docs.Load(t.Context())
			h.rows = rows
			f.steps(8)
			after, err := f.docs.Load(t.Context())
			if err != nil || after.Baseline != before.Baseline {
				t.Errorf("the baseline went from %v to %v, %v", before.Baseline, after.Baseline, err)
			}
			s := f.tuner.Status()
			checkHarmless(t, "status", s.LastWhy, s.NotReady(), s.Doing, s.Error)
			for _, d := range f.journal.decisions {
				checkHarmless(t, "decision "+d.ID, texts(d)...)
			}
			for line := range strings.Lines(log.String()) {
				checkHarmless(t, "log", strings.TrimSuffix(line, "\n"))
				if !strings.HasPrefix(line, "time=") {
					t.Errorf("a forged line in the log: %q", line)
				}
			}
		})
	}
}

func texts(d store.Decision) []string {
	all := []string{d.Reason}
	if d.Evidence != nil {
		for _, sample := range d.Evidence.Samples {
			all = append(all, sample.Why)
		}
	}
	return all
}

func checkHarmless(t *testing.T, where string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if len(text) > 4096 {
			t.Errorf("%s: a text of %d bytes", where, len(text))
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %.200q", where, text)
		}
	}
}

// FuzzObserver reads answers made of arbitrary labels and values: no panic, no
// number that cannot be calculated with, no harmful text.
func FuzzObserver(f *testing.F) {
	f.Add("a", "1024", "load", "reusable", 1.0, 2.0, int64(0))
	f.Add(escapes, "1024+", "", "", math.Inf(1), math.NaN(), int64(math.MaxInt64))
	f.Add("", "-1", "recompute", "queue_gate", -1.0, 0.0, int64(-3_600_000))
	f.Fuzz(func(t *testing.T, pod, reusable, action, reason string, first, last float64, shift int64) {
		rows := append(engine(pod), epp(pod, 1, 1, first)...)
		for i, row := range rows {
			row.Metric[labelReusable], row.Metric[labelAction], row.Metric[labelReason] = model.LabelValue(reusable), model.LabelValue(action), model.LabelValue(reason)
			if i%2 == 0 {
				row.Values[0].Value, row.Values[len(row.Values)-1].Value = model.SampleValue(first), model.SampleValue(last)
			}
			row.Values[i%len(row.Values)].Timestamp += model.Time(shift)
		}
		o := &observer{prom: &answers{engines: rows[:9], plugin: rows[9:]}, settings: testSettings()}
		s := o.sample(t.Context(), noon.Add(-15*time.Second), noon)
		checkHarmless(t, "sample", s.Why, s.Plugin.Why)
		d := store.Decision{ID: "a", Pool: "p", Time: noon, Kind: store.KindHold, Mode: store.ModeEnforce, Reason: "r",
			From: store.Params{MinExternalReusableTokens: 1}, To: store.Params{MinExternalReusableTokens: 1},
			Evidence: &store.Evidence{Samples: []store.Sample{s.record(store.ArmBaseline, testSettings().Objective)}}}
		if err := d.Validate(); err != nil {
			t.Fatalf("a sample that cannot be recorded: %v", err)
		}
		for _, c := range s.Plugin.Curve {
			for _, v := range []float64{c.Started, c.ReusableTokens, c.Finished, c.TTFTSeconds, c.ComputedTokens} {
				if !(v >= 0 && v <= 1e17) {
					t.Fatalf("%+v", c)
				}
			}
		}
	})
}
