//go:build failpoints

package failpoint

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// FAILPOINT=<name> or FAILPOINT=<name>:<n>: the n-th Hit of the name ends the process with SIGKILL.
var (
	where, count, _ = strings.Cut(os.Getenv("FAILPOINT"), ":")
	hits            atomic.Int64
)

// Hit ends the process at the chosen hit and does not return from it.
func Hit(name string) {
	if name == where && strconv.FormatInt(hits.Add(1), 10) == cmp.Or(count, "1") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // an error cannot be handled here
		select {}
	}
}
