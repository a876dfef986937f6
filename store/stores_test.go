package store_test

import (
	"path/filepath"
	"testing"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) func() storetest.Backend {
		m := store.NewMemory(storetest.Pool)
		return func() storetest.Backend { return m }
	})
}

func TestFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() storetest.Backend {
		path := filepath.Join(t.TempDir(), "pool.json")
		return func() storetest.Backend { return openFile(t, path) }
	})
}

func openFile(t *testing.T, path string) *store.File {
	t.Helper()
	f, err := store.OpenFile(store.FileOptions{Path: path, Pool: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func swap(t *testing.T, s *store.File, revision int64) {
	t.Helper()
	if err := s.Swap(t.Context(), document("pool", revision)); err != nil {
		t.Fatal(err)
	}
}
