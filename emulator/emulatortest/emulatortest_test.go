package emulatortest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator"
)

// recorder is a testing.TB that records a skip or a failure.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Skipf(format string, arguments ...any) {
	r.outcome = "skipped: " + fmt.Sprintf(format, arguments...)
	runtime.Goexit()
}

func (r *recorder) Errorf(string, ...any) { r.outcome = "failed" }

func (r *recorder) FailNow() { runtime.Goexit() }

func TestATestWithoutAnEmulatorSkipsOrFailsAndSaysWhy(t *testing.T) {
	broken := func(emulator.SDK, context.Context) (*emulator.Process, error) { return nil, errors.New("broken") }
	const skipped = "skipped: left out: emulator: Google's emulators are not installed"
	for name, test := range map[string]struct{ running, required, want string }{
		"it is skipped if none is installed": {"", "", skipped},
		"it fails if they are required":      {"", "1", "failed"},
		"it needs none if one runs already":  {"127.0.0.1:1", "1", "got 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CLOUDSDK_ROOT_DIR", t.TempDir())
			t.Setenv("REQUIRE_EMULATORS", test.required)
			watched := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				var s shared
				//nolint:testifylint // the recorder ends this goroutine alone
				watched.outcome = "got " + s.get(watched, test.running, broken)
			}()
			<-done
			require.Contains(t, watched.outcome, test.want)
		})
	}
}
