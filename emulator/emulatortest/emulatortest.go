// Package emulatortest shares one emulator of each kind in a test process. It never skips a suite silently.
package emulatortest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator"
)

// shared is one emulator for the whole test process.
type shared struct {
	once    sync.Once
	process *emulator.Process
	err     error
}

var pubsub, firestore shared

// PubSub returns the Pub/Sub emulator's host:port. Without one it skips the test, unless REQUIRE_EMULATORS=1.
func PubSub(tb testing.TB) string {
	tb.Helper()
	return pubsub.get(tb, os.Getenv("PUBSUB_EMULATOR_HOST"), emulator.SDK.StartPubSub)
}

// Firestore does the same for the Firestore emulator.
func Firestore(tb testing.TB) string {
	tb.Helper()
	return firestore.get(tb, os.Getenv("FIRESTORE_EMULATOR_HOST"), emulator.SDK.StartFirestore)
}

func (s *shared) get(
	tb testing.TB, running string, start func(emulator.SDK, context.Context) (*emulator.Process, error),
) string {
	tb.Helper()
	if running != "" {
		return running
	}
	s.once.Do(func() {
		var sdk emulator.SDK
		if sdk, s.err = emulator.Find(); s.err == nil {
			s.process, s.err = start(sdk, context.Background()) // it outlives the first test that uses it
		}
	})
	if errors.Is(s.err, emulator.ErrNotInstalled) {
		Needs(tb, s.err)
	}
	require.NoError(tb, s.err)
	return s.process.Addr()
}

// Needs skips a test if the error says that something is not installed, unless REQUIRE_EMULATORS=1.
func Needs(tb testing.TB, missing error) {
	tb.Helper()
	if missing != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		tb.Skipf("left out: %v", missing)
	}
	require.NoError(tb, missing, "CI leaves nothing out")
}

// Main runs a package's tests from TestMain, stops the shared emulators, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	for _, s := range []*shared{&pubsub, &firestore} {
		_ = s.process.Stop() // the process ends now, and the kernel ends the emulator with it
	}
	return code
}
