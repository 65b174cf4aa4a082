// Package emulatortest gives tests an emulator. It owns sharing one of each kind per
// test process, and the rule for where there is none. It refuses to hide a suite
// that left itself out.
package emulatortest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"billhook/emulator"
)

// shared is one emulator of the test process.
type shared struct {
	once    sync.Once
	process *emulator.Process
	addr    string
	err     error
}

var (
	pubsub    shared
	firestore shared
)

// PubSub returns the host:port of a Pub/Sub emulator that the test process shares.
// Where none is installed the test is skipped, saying so; with REQUIRE_EMULATORS=1
// it fails.
func PubSub(tb testing.TB) string {
	tb.Helper()
	return pubsub.get(tb, os.Getenv("PUBSUB_EMULATOR_HOST"), func(ctx context.Context, sdk emulator.SDK) (*emulator.Process, error) {
		return sdk.StartPubSub(ctx, 0, nil)
	})
}

// Firestore returns the host:port of a Firestore emulator, on the same terms.
func Firestore(tb testing.TB) string {
	tb.Helper()
	return firestore.get(tb, os.Getenv("FIRESTORE_EMULATOR_HOST"), func(ctx context.Context, sdk emulator.SDK) (*emulator.Process, error) {
		return sdk.StartFirestore(ctx, 0, nil)
	})
}

func (s *shared) get(tb testing.TB, running string, start func(context.Context, emulator.SDK) (*emulator.Process, error)) string {
	tb.Helper()
	if running != "" {
		return running
	}
	s.once.Do(func() {
		// It outlives the test that happens to come first.
		ctx := context.Background()
		sdk, err := emulator.Find(ctx)
		if err == nil {
			s.process, err = start(ctx, sdk)
		}
		if err != nil {
			s.err = err
			return
		}
		s.addr = s.process.Addr()
	})
	switch {
	case errors.Is(s.err, emulator.ErrNotInstalled) && os.Getenv("REQUIRE_EMULATORS") == "":
		tb.Skipf("left out: %v", s.err)
	case s.err != nil:
		tb.Fatalf("the emulator is needed here: %v", s.err)
	}
	return s.addr
}

// Main runs the tests of a package and stops the emulators they shared. Call it
// from TestMain; it returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	for _, s := range []*shared{&pubsub, &firestore} {
		if s.process != nil {
			_ = s.process.Stop() // the process ends now; the kernel does the rest
		}
	}
	return code
}
