package kube

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
)

// replica is "kvtuner run" in a process of its own, as the service account of the
// base, which may do what its Role allows and no more.
type replica struct {
	cmd    *exec.Cmd
	config string // its file

	mu  sync.Mutex
	log []string
	end chan struct{}
}

func launch(t *testing.T, ns string) *replica {
	t.Helper()
	return launchConfig(t, fmt.Sprintf(`
kubernetes: {kubeconfig: %q, lease: {name: kvtuner, duration: 2s}}
pools: [{name: default, mode: enforce, scrapeInterval: 1s, store: {configMap: {name: kvtuner-default}}}]
`, plane.kubeconfig(t, ns, token(t, ns, "kvtuner"))))
}

// launchConfig with a port and a history of its own, and a Prometheus that is away.
func launchConfig(t *testing.T, text string) *replica {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "kvtuner.yaml")
	text = fmt.Sprintf("listen: 127.0.0.1:0\nprometheus: {url: \"http://127.0.0.1:1\"}\nhistory: {path: %q}\n", filepath.Join(dir, "history.db")) + text
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replica{cmd: exec.Command(binary("kvtuner"), "run", "--config", config), config: config, end: make(chan struct{})}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("%v (make e2e-kube builds it)", err)
	}
	go func() {
		defer close(r.end)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			r.mu.Lock()
			r.log = append(r.log, lines.Text())
			r.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.end
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("a replica said:\n%s", strings.Join(r.log, "\n"))
		}
	})
	return r
}

func (r *replica) said(s string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.log, "\n"), s)
}

// address of its API.
func (r *replica) address(t *testing.T) string {
	t.Helper()
	address := ""
	eventually(t, "a replica's address", func(context.Context) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		m := started.FindStringSubmatch(strings.Join(r.log, "\n"))
		if m != nil {
			address = "http://" + m[1]
		}
		return m != nil
	})
	return address
}

var started = regexp.MustCompile(`kvtuner started.* address=(\S+)`)

func (r *replica) leads() bool { return r.said("this replica leads") }

// leader of two replicas, and the other.
func leader(t *testing.T, a, b *replica) (*replica, *replica) {
	t.Helper()
	eventually(t, "one of the replicas to lead", func(context.Context) bool { return a.leads() || b.leads() })
	if a.leads() {
		return a, b
	}
	return b, a
}

// wantedKills is the environment's KILLS, or as many as do not take long.
func wantedKills(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("KILLS"), "10")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KILLS is %q, want a number of 1 or more", text)
	}
	return n
}

// TestFailover kills the leading process again and again, each time with a
// candidate in the document, and then stops one in peace.
func TestFailover(t *testing.T) {
	kills := wantedKills(t)
	ns := namespace(t)
	apply(t, ns, kustomized(t, "base"), false)
	a, b := launch(t, ns), launch(t, ns)
	reader, err := configmap.OpenReader(configmap.Options{Client: admin.CoreV1(), Namespace: ns, Name: "kvtuner-default", Pool: "default"})
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for n := range kills {
		first, second := leader(t, a, b)
		var before *store.Document
		eventually(t, "the leader's document", func(ctx context.Context) bool {
			before, err = reader.Load(ctx)
			return err == nil && before.Trial == nil && first.said("decision")
		})
		if second.leads() {
			t.Fatalf("kill %d: both lead", n)
		}
		if ready := fetch(t, http.DefaultClient, second.address(t)+"/readyz"); !strings.Contains(ready, "on standby") {
			t.Errorf("kill %d: the one that waits says %q", n, ready)
		}
		if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-first.end
		died := time.Now()
		leave(t, ns, before) // the last write of the dead
		eventually(t, "the candidate's end", func(ctx context.Context) bool {
			d, err := reader.Load(ctx)
			return err == nil && d.Trial == nil
		})
		took = append(took, time.Since(died))
		after, err := reader.Load(t.Context())
		if err != nil || after.Baseline != before.Baseline || after.Revision != before.Revision+2 {
			t.Fatalf("kill %d: after it %+v, %v, before it %+v", n, after, err, before)
		}
		a, b = second, launch(t, ns)
	}
	slices.Sort(took)
	t.Logf("%d leaders killed: a successor has ended the candidate after p50 %v, max %v, with a Lease of 2 s", kills,
		took[kills/2].Round(time.Millisecond), took[kills-1].Round(time.Millisecond))

	first, second := leader(t, a, b)
	stopped := time.Now()
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other to lead", func(context.Context) bool { return second.leads() })
	t.Logf("one leader stopped: the other leads after %v", time.Since(stopped).Round(time.Millisecond))
	<-first.end
	if first.said("the Lease was lost") {
		t.Error("the Lease was lost rather than released")
	}
	checkReadable(t, ns)
	checkDeletion(t, ns, second, reader)
	checkOutage(t, second)
}

// checkDeletion: the Role forbids to make a ConfigMap, which is said; once there is
// an empty one, the document is back in it, above the revision it had.
func checkDeletion(t *testing.T, ns string, r *replica, reader *configmap.Reader) {
	t.Helper()
	before, err := reader.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps := admin.CoreV1().ConfigMaps(ns)
	if err := maps.Delete(t.Context(), "kvtuner-default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tuner to say what to make", func(context.Context) bool {
		return r.said("kubectl create configmap -n " + ns + " kvtuner-default")
	})
	apply(t, ns, kustomized(t, "base"), false)
	eventually(t, "the document in the new ConfigMap", func(ctx context.Context) bool {
		d, err := reader.Load(ctx)
		return err == nil && d.Baseline == before.Baseline && d.Revision > before.Revision
	})
}

// checkOutage: a leader without the API server steps down, for another may lead.
func checkOutage(t *testing.T, r *replica) {
	t.Helper()
	plane.stopAPIServer()
	<-r.end
	if !r.said("the Lease was lost") {
		t.Error("it did not say why it ended")
	}
	if err := plane.startAPIServer(); err != nil {
		t.Fatal(err)
	}
}

// leave a trial that the dead leader has just begun.
func leave(t *testing.T, ns string, d *store.Document) {
	t.Helper()
	s, err := configmap.Open(configmap.Options{Client: admin.CoreV1(), Namespace: ns, Name: "kvtuner-default", Pool: "default"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	next := d.Clone()
	next.Revision, next.UpdatedAt = d.Revision+1, now
	next.Trial = &store.Trial{ID: "t1", Candidate: store.Params{MinExternalReusableTokens: store.Never}, Assignment: store.Assignment{Mode: store.AssignAll},
		StartedAt: now, ExpiresAt: now.Add(time.Hour)}
	if err := s.Swap(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}

// checkReadable: what happened is told where kubectl shows it.
func checkReadable(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the status", func(ctx context.Context) bool {
		cm, err := admin.CoreV1().ConfigMaps(ns).Get(ctx, "kvtuner-default", metav1.GetOptions{})
		return err == nil && strings.Contains(cm.Data["status.yaml"], "pool: default\n") && strings.Contains(cm.Data["status.yaml"], "type: Ready")
	})
	eventually(t, "the events", func(ctx context.Context) bool {
		cm, err := admin.CoreV1().ConfigMaps(ns).Get(ctx, "kvtuner-default", metav1.GetOptions{})
		if err != nil {
			return false
		}
		events, err := admin.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(cm.UID)})
		reasons := ""
		if err == nil {
			for _, e := range events.Items {
				reasons += e.Reason + " "
			}
		}
		return strings.Contains(reasons, "TuningReconcile")
	})
}
