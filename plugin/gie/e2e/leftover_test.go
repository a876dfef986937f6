//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestNothingIsLeftBehind: a test process that is killed takes along what it has
// started.
func TestNothingIsLeftBehind(t *testing.T) {
	const asVictim = "E2E_VICTIM"
	if os.Getenv(asVictim) != "" {
		child := launch(t, "sleep", func() *exec.Cmd { return exec.Command("sleep", "600") })
		fmt.Println(child.running.Process.Pid)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	victim := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), asVictim+"=1")
	out, _ := victim.Output() // killed
	line, _, _ := bytes.Cut(out, []byte("\n"))
	child, err := strconv.Atoi(string(line))
	if err != nil {
		t.Fatalf("the victim said %q", out)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	eventually(t, "the child is gone", 10*time.Second, func() bool { return !runs(child) })
}

// runs says that a process is there, and not merely waiting to be reaped.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}
