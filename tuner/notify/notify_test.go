package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func decision(kind store.Kind, pool string) store.Decision {
	return store.Decision{
		ID: store.NewID(noon, 1), Pool: pool, Time: noon, Kind: kind, Mode: store.ModeEnforce,
		From: store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, To: store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: 8},
		Reason: "<inf+8> & more", Evidence: &store.Evidence{Verdict: "better"},
	}
}

type memory struct{ err error }

func (j memory) Append(store.Decision) error { return j.err }

// received is what a target got.
type received struct {
	header http.Header
	body   string
}

// target answers with each of the statuses in turn, then with 200.
func target(t *testing.T, statuses ...int) (url string, got <-chan received) {
	t.Helper()
	all := make(chan received, 200)
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		status := http.StatusOK
		if len(statuses) > 0 {
			status, statuses = statuses[0], statuses[1:]
		}
		w.WriteHeader(status)
		all <- received{r.Header, string(body)}
	}))
	t.Cleanup(s.Close)
	return s.URL, all
}

// bench is a notifier under test. A pause is told of, and over at once.
type bench struct {
	*Notifier
	journal tuner.Journal
	pauses  chan time.Duration
	log     bytes.Buffer
}

func newBench(t *testing.T, run bool, targets ...tuner.NotificationConfig) *bench {
	t.Helper()
	b := &bench{pauses: make(chan time.Duration, 100)}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	n, err := New(Options{
		Targets: targets, Client: client, Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Registerer: prometheus.NewRegistry(),
		Pause: func(_ context.Context, d time.Duration) { b.pauses <- d },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Notifier, b.journal = n, n.Journal(memory{})
	if run {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); n.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	return b
}

func (b *bench) append(t *testing.T, d store.Decision) {
	t.Helper()
	if err := b.journal.Append(d); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) count(target, outcome string) int {
	return int(testutil.ToFloat64(b.outcome.WithLabelValues(target, outcome)))
}

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSlack(t *testing.T) {
	url, got := target(t)
	b := newBench(t, true, tuner.NotificationConfig{Name: "chat", Format: tuner.NotifySlack, URLFile: file(t, url+"/services/T0/secret\n")})
	b.append(t, decision(store.KindMove, "p"))
	r := <-got
	want := `{"text":"kvtuner, pool p: move 1024+8 -\u0026gt; inf+8. \u0026lt;inf+8\u0026gt; \u0026amp; more (20260105T120000Z-0001)"}`
	if diff := cmp.Diff(want, r.body); diff != "" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("sent %v:\n%s", r.header, diff)
	}
}

func TestJSON(t *testing.T) {
	url, got := target(t)
	b := newBench(t, true, tuner.NotificationConfig{Name: "hook", Format: tuner.NotifyJSON, URL: url, TokenFile: file(t, "hunter2\n")})
	b.append(t, decision(store.KindRollback, "p"))
	r := <-got
	var m message
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatal(err)
	}
	if m.Kind != store.KindRollback || m.To.String() != "inf+8" || m.Evidence != nil || !strings.Contains(m.Text, "rollback 1024+8 -> inf+8") {
		t.Errorf("sent %s", r.body)
	}
	if r.header.Get("Authorization") != "Bearer hunter2" {
		t.Errorf("sent %q", r.header.Get("Authorization"))
	}
}

// Who is told of what.
func TestKindsAndPools(t *testing.T) {
	url, got := target(t)
	b := newBench(t, true,
		tuner.NotificationConfig{Name: "usual", Format: tuner.NotifyJSON, URL: url, Pools: []string{"a"}},
		tuner.NotificationConfig{Name: "rests", Format: tuner.NotifyJSON, URL: url, Kinds: []store.Kind{store.KindRest}})
	for _, k := range []store.Kind{store.KindRest, store.KindKeep, store.KindTrial, store.KindShed} {
		b.append(t, decision(k, "a"))
		b.append(t, decision(k, "b"))
	}
	kinds := map[string]int{}
	for range 3 {
		var m message
		if err := json.Unmarshal([]byte((<-got).body), &m); err != nil {
			t.Fatal(err)
		}
		kinds[fmt.Sprint(m.Kind, m.Pool)]++
	}
	if diff := cmp.Diff(map[string]int{"resta": 1, "restb": 1, "sheda": 1}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestTroubleIsRetriedWithBackOff(t *testing.T) {
	url, got := target(t, 500, 429, 503)
	b := newBench(t, true, tuner.NotificationConfig{Name: "hook", Format: tuner.NotifyJSON, URL: url})
	b.append(t, decision(store.KindMove, "p"))
	for range 4 {
		<-got
	}
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if d := <-b.pauses; d != want {
			t.Errorf("paused %v, want %v", d, want)
		}
	}
}

// What is refused, or never works, is counted and said; the URL is not.
func TestFailuresAreCountedAndSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses []int
		url      string
		says     string
	}{
		"refused":     {[]int{403}, "", "answered 403"},
		"moved":       {[]int{302}, "", "answered 302"},
		"down":        {nil, "http://127.0.0.1:1/secret", "connection refused"},
		"no URL":      {nil, "here/secret", "URL is none"},
		"always busy": {[]int{500, 500, 500, 500, 500, 500}, "", "attempts=6"},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := target(t, tc.statuses...)
			url += "/secret"
			if tc.url != "" {
				url = tc.url
			}
			b := newBench(t, false, tuner.NotificationConfig{Name: "hook", Format: tuner.NotifyJSON, URL: url})
			b.deliver(t.Context(), b.o.Targets[0], decision(store.KindMove, "p"))
			if b.count("hook", "failed") != 1 || b.count("hook", "sent") != 0 {
				t.Errorf("failed %d, sent %d", b.count("hook", "failed"), b.count("hook", "sent"))
			}
			if log := b.log.String(); !strings.Contains(log, tc.says) || strings.Contains(log, "secret") {
				t.Errorf("the log says %s, want %q and no secret", log, tc.says)
			}
		})
	}
}

// A file that a setting names is read with a limit.
func TestFilesAreBounded(t *testing.T) {
	url, got := target(t)
	endless := file(t, strings.Repeat("x", tuner.MaxFile+1))
	for says, c := range map[string]tuner.NotificationConfig{
		"urlFile: ":   {URLFile: endless},
		"tokenFile: ": {URL: url, TokenFile: endless},
	} {
		c.Name, c.Format = "hook", tuner.NotifyJSON
		b := newBench(t, false, c)
		b.deliver(t.Context(), b.o.Targets[0], decision(store.KindMove, "p"))
		if log := b.log.String(); !strings.Contains(log, says) || !strings.Contains(log, "is larger than") || len(got) != 0 {
			t.Errorf("the log says %s and %d were sent, want that the %sis too large", log, len(got), says)
		}
	}
}

// A target that hangs delays nobody: the queue fills, and what does not fit is
// counted.
func TestAppendNeverWaits(t *testing.T) {
	b := newBench(t, false, tuner.NotificationConfig{Name: "hook", Format: tuner.NotifyJSON, URL: "http://127.0.0.1:1"})
	for range queueLength + 3 {
		b.append(t, decision(store.KindMove, "p"))
	}
	if n := b.count("hook", "dropped"); n != 3 {
		t.Errorf("%d dropped, want 3", n)
	}
}

func TestWhatIsNotRecordedIsNotTold(t *testing.T) {
	b := newBench(t, false, tuner.NotificationConfig{Name: "hook", Format: tuner.NotifyJSON, URL: "http://127.0.0.1:1"})
	broken := errors.New("disk full")
	if err := b.Journal(memory{broken}).Append(decision(store.KindMove, "p")); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if len(b.queues[0]) != 0 {
		t.Error("told of what is not recorded")
	}
}
