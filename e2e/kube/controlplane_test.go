package kube

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// controlPlane is an etcd and a kube-apiserver that can be restarted.
type controlPlane struct {
	dir       string
	etcd      *exec.Cmd
	apiserver *exec.Cmd
	etcdURL   string
	port      string
	token     string
}

// binary finds what "make e2e-kube" has built.
func binary(name string) string {
	dir := os.Getenv("KVTUNER_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		panic(err)
	}
	return path
}

func startControlPlane(dir string) (*controlPlane, error) {
	c := &controlPlane{dir: dir, token: "admin-of-the-tests", port: freePort()}
	if err := c.writeKeys(); err != nil {
		return nil, err
	}
	client, peer := freePort(), freePort()
	c.etcdURL = "http://127.0.0.1:" + client
	var err error
	c.etcd, err = start(dir, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls=http://127.0.0.1:"+peer, "--initial-advertise-peer-urls=http://127.0.0.1:"+peer,
		"--initial-cluster=default=http://127.0.0.1:"+peer)
	if err != nil {
		return nil, err
	}
	if err := waitFor(c.etcdURL+"/health", http.DefaultClient); err != nil {
		c.stop()
		return nil, err
	}
	if err := c.startAPIServer(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *controlPlane) writeKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	signing := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(c.dir, "sa.key"), signing, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, "tokens.csv"), []byte(c.token+",admin,admin,system:masters\n"), 0o600)
}

func (c *controlPlane) startAPIServer() error {
	var err error
	c.apiserver, err = start(c.dir, "kube-apiserver",
		"--etcd-servers="+c.etcdURL, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+c.port,
		"--cert-dir="+filepath.Join(c.dir, "certs"), "--token-auth-file="+filepath.Join(c.dir, "tokens.csv"),
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+filepath.Join(c.dir, "sa.key"),
		"--service-account-signing-key-file="+filepath.Join(c.dir, "sa.key"), "--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none")
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.config())
	if err != nil {
		return err
	}
	return waitFor(c.config().Host+"/readyz", client)
}

// stopAPIServer as a crash does.
func (c *controlPlane) stopAPIServer() {
	kill(c.apiserver)
	c.apiserver = nil
}

func (c *controlPlane) stop() {
	kill(c.apiserver)
	kill(c.etcd)
}

func kill(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (c *controlPlane) config() *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + c.port, BearerToken: c.token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// kubeconfig for whoever holds the token.
func (c *controlPlane) kubeconfig(t testing.TB, namespace, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
		"users":[{"name":"u","user":{"token":%q}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":%q}}]}`, c.config().Host, token, namespace)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start a server whose output is kept in dir.
func start(dir, name string, args ...string) (*exec.Cmd, error) {
	out, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(binary(name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (make e2e-kube builds it)", err)
	}
	return cmd, nil
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	return port
}

func waitFor(url string, client *http.Client) error {
	const limit = 2 * time.Minute
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		said := ""
		response, err := client.Get(url)
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			said = string(body)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer within %v: %w %s", url, limit, err, said)
		}
	}
}

// plane serves all tests of this package, admin may do everything on it.
var (
	plane *controlPlane
	admin kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetOutput(io.Discard) // the chart's loader tells of each link
	dir, err := os.MkdirTemp("", "kvtuner-kube")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if plane, err = startControlPlane(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		for _, name := range []string{"etcd.log", "kube-apiserver.log"} {
			log, _ := os.ReadFile(filepath.Join(dir, name))
			fmt.Fprintf(os.Stderr, "%s:\n%s\n", name, log[max(0, len(log)-4000):])
		}
		return 1
	}
	defer plane.stop()
	if admin, err = kubernetes.NewForConfig(plane.config()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
