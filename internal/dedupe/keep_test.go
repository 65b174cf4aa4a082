package dedupe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

var shelf = store.Key{Collection: "shelf", ID: "x"}

// TestAKeptMessageIsWaitedForByItsOtherCopies: the copy with the ticket is the one to
// be handled, and any other until its time has come.
func TestAKeptMessageIsWaitedForByItsOtherCopies(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *floor) dedupe.Seen{
		"after a failure": func(t *testing.T, f *floor) dedupe.Seen {
			t.Helper()
			run := f.begin("e1")
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now.Add(time.Hour), Kept: dedupe.Kept{Ticket: "1-1", Writes: []store.Write{store.Create(shelf, map[string]any{"a": "b"})}}})
			require.NoError(t, err)
			return seen
		},
		"after a lease": func(t *testing.T, f *floor) dedupe.Seen {
			t.Helper()
			run := f.claim(t, "e1", false)
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now.Add(time.Hour), Kept: dedupe.Kept{Ticket: "1-1", Writes: []store.Write{store.Create(shelf, map[string]any{"a": "b"})}}})
			require.NoError(t, err)
			return seen
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFloor(t)
			require.Equal(t, dedupe.Counted, fail(t, f))
			_, err := f.faults.Get(t.Context(), shelf)
			require.NoError(t, err, "kept with the record")
			record := f.record(t, "e1")
			require.Equal(t, "1-1", record.DelayTicket)
			require.EqualValues(t, 1, record.Attempts)
			look := func(ticket string) dedupe.Seen {
				run := f.once.Begin(dedupe.Key("q", dedupe.DefaultTenant, "e1"), dedupe.Record{
					Queue: record.Queue, Tenant: record.Tenant, EventID: "e1", PayloadHash: record.PayloadHash, DelayTicket: ticket,
				}, time.Hour)
				seen, err := run.Look(t.Context())
				require.NoError(t, err)
				return seen
			}
			require.Equal(t, dedupe.Waiting, look(""))
			require.Equal(t, dedupe.Waiting, look("1-0"))
			require.Equal(t, dedupe.Early, look("1-1"), "no other copy waits, and its time has not come")
			f.now = f.now.Add(time.Hour)
			require.Equal(t, dedupe.Fresh, look(""), "its time has come")
		})
	}
}
