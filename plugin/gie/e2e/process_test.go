//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// process is a part of the fleet that is a program.
type process struct {
	command func() *exec.Cmd
	log     *os.File
	running *exec.Cmd
	ended   chan struct{}
}

// ports finds n consecutive ones that nobody listens on, outside the range that
// connections take theirs from.
func ports(n int) int {
	for {
		first := 20000 + rand.IntN(10000)
		if free(first, n) {
			return first
		}
	}
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		listener, err := net.Listen("tcp", fmt.Sprint(":", port))
		if err != nil {
			return false
		}
		listener.Close()
	}
	return true
}

// build compiles a command of a module.
func build(t *testing.T, module, command string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(command))
	make := exec.Command("go", "build", "-o", binary, command)
	make.Dir = module
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return binary
}

// launch starts a program that is killed when the test ends, and shown if it
// failed.
func launch(t *testing.T, name string, command func() *exec.Cmd) *process {
	t.Helper()
	logs, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: command, log: logs}
	p.start(t)
	t.Cleanup(func() {
		if p.kill() {
			t.Errorf("%s ended by itself: %v", name, p.running.ProcessState)
		}
		if t.Failed() {
			t.Logf("%s said at last: %s", name, p.tail())
		}
		logs.Close()
	})
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.running = p.command()
	p.running.Stdout, p.running.Stderr = p.log, p.log
	running, started, ended := p.running, make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		defer diesWithTest(running)()
		err := running.Start()
		started <- err
		if err == nil {
			running.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.ended = ended
}

// diesWithTest has a command, which is not started yet, killed when the test
// process ends in whatever way: one that is killed, or out of time, runs no
// cleanups. The kernel goes by the thread that starts the command, so that the
// goroutine has its own until the function returned is called.
func diesWithTest(command *exec.Cmd) (ended func()) {
	runtime.LockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}

// kill gives it no time to tidy up, and says whether it had ended before.
func (p *process) kill() (before bool) {
	select {
	case <-p.ended:
		return true
	default:
	}
	p.running.Process.Kill()
	<-p.ended
	return false
}

// tail is the end of what the program wrote.
func (p *process) tail() []byte {
	raw, err := os.ReadFile(p.log.Name())
	if err != nil {
		return fmt.Appendf(nil, "nothing that could be read: %v", err)
	}
	return raw[max(0, len(raw)-4000):]
}
