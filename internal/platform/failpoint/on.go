//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// where and count come from FAILPOINT=<name> or FAILPOINT=<name>:<n>. The n-th Hit of the name
// ends the process with SIGKILL.
var (
	where, count = parse(os.Getenv("FAILPOINT"))
	hits         atomic.Int64
)

func parse(value string) (string, int64) {
	name, n, _ := strings.Cut(value, ":")
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		count = 1
	}
	return name, count
}

// Hit ends the process at the chosen hit and does not return from it.
func Hit(name string) {
	if name != where || hits.Add(1) != count {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // on an error there is nothing left to do
	select {}
}
