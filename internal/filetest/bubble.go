package filetest

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles says how many bubbles are open under the race detector, and how many processors there were before.
var bubbles struct {
	sync.Mutex
	open, processors int
}

// Bubble runs a test in a bubble of testing/synctest. Go's race detector crashes when two processors fire
// timers of one bubble at the same time (golang/go#78156): under it, one processor runs everything meanwhile.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		count(1)
		defer count(-1)
	}
	synctest.Test(t, test) //nolint:forbidigo // here alone
}

func count(more int) {
	bubbles.Lock()
	defer bubbles.Unlock()
	switch bubbles.open += more; {
	case bubbles.open == 0:
		runtime.GOMAXPROCS(bubbles.processors)
	case bubbles.open == 1 && more == 1:
		bubbles.processors = runtime.GOMAXPROCS(1)
	}
}
