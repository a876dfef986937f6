package dashboards

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	simulated "github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/internal/picture"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
)

var pictures = flag.String("pictures", "", "folder to draw the dashboards of a longer run into, as dashboard-*.svg; empty checks a short one")

// day is what the pictures show: storage turns slow, the workload shifts, storage
// recovers.
var day = []struct {
	scenario string
	minutes  time.Duration
}{{"8k-c32", 25}, {"8k-c32-slow-storage", 35}, {"mixed-c64-slow-storage", 35}, {"mixed-c64", 25}, {"8k-c64", 30}}

// TestPictures draws every panel of every dashboard from its checked-in JSON.
func TestPictures(t *testing.T) {
	run := lab.Run{Seed: 1, Policy: lab.Tuned(store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8})}
	var length time.Duration
	for _, phase := range day {
		if *pictures == "" {
			phase.minutes = 3
		}
		scenario, err := simulated.ByName(phase.scenario)
		must(t, scenario, err)
		length += phase.minutes * time.Minute
		run.Phases = append(run.Phases, lab.Phase{Scenario: scenario, Duration: phase.minutes * time.Minute})
	}
	run.Recorded = func(s *prom.Server, until time.Time) error {
		c, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: s.RoundTripper()})
		if err != nil {
			return err
		}
		source := picture.Source{API: v1.NewAPI(c), From: until.Add(-length), To: until, Step: 30 * time.Second, Variables: strings.NewReplacer(
			"$namespace", ".+", "$pool", ".+", "$model_name", ".+", "$__rate_interval", "2m", "$__range", length.String())}
		for _, d := range all(t) {
			draw(t, file(d), source)
		}
		return nil
	}
	_, err := run.Do(context.Background())
	must(t, run, err)
}

func draw(t *testing.T, file string, source picture.Source) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, text, err)
	d, err := picture.Read(text)
	must(t, d, err)
	var out bytes.Buffer
	empty, err := picture.Draw(context.Background(), &out, d, source)
	must(t, empty, err)
	for _, title := range empty {
		t.Errorf("%s: panel %q shows nothing", file, title)
	}
	wellFormed(t, out.Bytes())
	if *pictures != "" {
		name := "dashboard-" + strings.TrimSuffix(strings.TrimPrefix(file, "kvtuner-"), ".json") + ".svg"
		if err := os.WriteFile(filepath.Join(*pictures, name), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
