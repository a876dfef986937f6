package kube

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
		"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"llm"}}]}`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConnectSaysWhatIsMissing(t *testing.T) {
	_, err := Connect(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "name a kubeconfig") {
		t.Errorf("got %v", err)
	}
}
