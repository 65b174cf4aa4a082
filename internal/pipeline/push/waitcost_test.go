package push_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// TestWhatAWaitCostsTheStore counts what an attempt that fails, and the wait for the next,
// cost beside a credit that succeeds at once.
func TestWhatAWaitCostsTheStore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		queue func(*catalog.Queue)
		code  int
		how   string

		// documents are those written and removed.
		reads, commits, documents int64
	}{
		"nacked":                       {policyOf(times10(10), 3), 500, "nacked", 1, 1, 1},
		"in the same request":          {policyOf(times10(1), 3), 200, "", 1, 1, 1},
		"kept, in no order":            {patient, 200, "kept", 5, 2, 5},
		"kept, in order, with its key": {both(patient, inOrder), 200, "kept", 7, 3, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: test.queue, credit: times(1, errHandler)})
			m := paid("e1", known, 1)
			require.Equal(t, test.code, r.deliver(m.again(1)).code)
			r.pass(21 * time.Minute)
			switch test.how {
			case "nacked":
				require.Equal(t, 200, r.deliver(m.again(2)).code)
			case "kept":
				back := r.release(t)
				require.Len(t, back, 1)
				require.Equal(t, 200, r.deliver(back[0]).code)
			default: // it has succeeded already
			}
			reads, commits, written := r.counter.Gets.Load()+r.counter.Queries.Load(), r.counter.Commits.Load()-1, r.counter.Written.Load()-3
			require.EqualValues(t, 1000, r.balance(t))
			require.Equal(t, test.reads, reads, "reads")
			require.Equal(t, test.commits, commits, "commits")
			require.Equal(t, test.documents, written, "documents")
		})
	}
}
