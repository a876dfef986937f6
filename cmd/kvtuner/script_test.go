package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner/web"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kvtuner": main})
}

// TestScripts runs the command lines of testdata/script against a daemon's API
// with the records of fixture_test.go. A script has the variables ADDRESS and
// HOST of that API, LONG, 800 characters, READY of one whose pools are all ready, OTHER of another
// service, TOKENS, the operators alice and bob of the first two, LOCKED, a history that a daemon holds, and DB, one that none holds.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup:               setupScript,
		Condition:           condition,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// condition knows [race].
func condition(name string) (bool, error) {
	if name != "race" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return racing, nil
}

// exits runs a command and checks its exit code: exits 2 kvtuner frobnicate.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func setupScript(env *testscript.Env) error {
	env.Setenv("LC_ALL", "C.UTF-8")
	env.Setenv("LONG", strings.Repeat("why ", 200))
	env.Setenv("TOKENS", filepath.Join(env.WorkDir, "operators"))
	if err := os.WriteFile(env.Getenv("TOKENS"), []byte("alice 0123456789abcdef\nbob fedcba9876543210\n"), 0o600); err != nil {
		return err
	}
	closed, err := seedHistory(filepath.Join(env.WorkDir, "closed.db"))
	if err != nil {
		return err
	}
	if err := closed.Close(); err != nil {
		return err
	}
	locked, err := seedHistory(filepath.Join(env.WorkDir, "locked.db"))
	if err != nil {
		return err
	}
	env.Defer(func() { _ = locked.Close() })
	address, err := serveAPI(env, locked, fixturePools()...)
	if err != nil {
		return err
	}
	ready, err := serveAPI(env, locked, fixturePools()[0])
	if err != nil {
		return err
	}
	other := httptest.NewServer(http.FileServer(http.Dir(env.WorkDir)))
	env.Defer(other.Close)
	env.Setenv("ADDRESS", address)
	env.Setenv("HOST", strings.TrimPrefix(address, "http://"))
	env.Setenv("READY", ready)
	env.Setenv("OTHER", other.URL)
	env.Setenv("LOCKED", filepath.Join(env.WorkDir, "locked.db"))
	env.Setenv("DB", filepath.Join(env.WorkDir, "closed.db"))
	return nil
}

func serveAPI(env *testscript.Env, h *store.History, pools ...web.Pool) (address string, err error) {
	handler, err := web.New(web.Options{
		Version: "v1.2.3", Pools: web.Fixed(pools), History: h, Gatherer: prometheus.NewRegistry(),
		Now: fixtureNow, Logger: slog.New(slog.DiscardHandler), TokenFile: env.Getenv("TOKENS"),
	})
	if err != nil {
		return "", err
	}
	server := httptest.NewServer(handler)
	env.Defer(server.Close)
	return server.URL, nil
}
