package store_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also serves as the process that the kill test kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(writerPathVariable); path != "" {
		writeForever(path)
	}
	goleak.VerifyTestMain(m)
}
