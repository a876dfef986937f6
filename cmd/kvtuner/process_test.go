package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

// process is "kvtuner run" in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
}

func launch(t *testing.T, config string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("kvtuner", "run", "--config", config)}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = bufio.NewScanner(stderr)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// await reads the log up to a line with s in it, and returns that.
func (p *process) await(s string) string {
	p.t.Helper()
	for p.log.Scan() {
		p.t.Log(p.log.Text())
		if strings.Contains(p.log.Text(), s) {
			return p.log.Text()
		}
	}
	p.t.Fatalf("the log ended before %q", s)
	return ""
}

// end sends a signal and waits for the process.
func (p *process) end(s syscall.Signal) error {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	for p.log.Scan() {
	}
	return p.cmd.Wait()
}

func TestRunSurvivesKillAndStopsOnRequest(t *testing.T) {
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.FormValue("query"), "{__name__=~") { // the loop's; a check asks for other things
			asked <- struct{}{}
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	dir := t.TempDir()
	history := filepath.Join(dir, "history.db")
	config := writeFile(t, "kvtuner.yaml", fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: %q, headers: ["X-Token: hunter2"]}
history: {path: %q}
pools: [{name: qwen, mode: enforce, store: {file: %q}}]
`, strings.Replace(server.URL, "//", "//user:hunter2@", 1), history, filepath.Join(dir, "qwen.json")))

	first := launch(t, config)
	if line := first.await("kvtuner started"); !strings.Contains(line, "qwen (enforce)") || strings.Contains(line, "hunter2") {
		t.Errorf("the start says: %s", line)
	}
	first.await("no document existed")
	<-asked // the pool is taken over, its first sample in the making
	if err := first.end(syscall.SIGKILL); err == nil {
		t.Error("survived SIGKILL")
	}

	second := launch(t, config)
	second.await("took over 1024+8")
	<-asked
	var out, errs bytes.Buffer
	if code := execute(context.Background(), []string{"history", "--db", history}, &out, &errs); code != exitFailure || !strings.Contains(errs.String(), "locked") {
		t.Errorf("the history is held: exit code %d, %s", code, &errs)
	}
	if err := second.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}

	h, err := store.OpenHistory(store.HistoryOptions{Path: history, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	found, err := h.Query(store.Filter{})
	if err != nil || len(found) != 2 {
		t.Errorf("%d decisions, %v; want those of both runs", len(found), err)
	}
}
