package dedupe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/handler"
)

// model is what must be true of one event, in as few words as possible: it is
// unknown, or its first payload is remembered with where it stands.
type model struct {
	payload  string
	status   dedupe.Status
	attempts int
	effects  int64
	expires  time.Time
}

// TestAnyHistoryKeepsTheEffectToOne delivers an event again and again, with one of
// two payloads, with answers lost and commits refused, and holds the store to the model.
func TestAnyHistoryKeepsTheEffectToOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBench()
		m := model{}
		remembered := func() bool { return m.status != "" && b.once.Now().Before(m.expires) }
		wrote := func(payload string, status dedupe.Status, attempts int) {
			m.payload, m.status, m.attempts, m.expires = payload, status, attempts, b.once.Now().Add(remember)
		}
		deliver := func(t *rapid.T, tx handler.Tx, after func(*dedupe.Run)) {
			payload := rapid.SampledFrom([]string{"A", "A", "A", "B"}).Draw(t, "payload")
			if !remembered() {
				m.status, m.attempts = "", 0
			}
			b.faults = rapid.SliceOfN(rapid.SampledFrom([]fault{0, 0, 0, refuse, lose, repeat}), 1, 1).Draw(t, "fault")
			f := b.faults[0]
			ctx := context.Background()
			run := b.begin(payload)
			seen, err := dedupetest.Effect(ctx, run, event(), rapid.Bool().Draw(t, "redelivered"), tx)
			switch {
			case remembered() && m.payload != payload && err == nil:
				require.Equal(t, dedupe.Differs, seen)
			case m.status == dedupe.Completed && err == nil:
				require.Equal(t, dedupe.Done, seen)
			case m.status == dedupe.DeadLettered && err == nil:
				require.Equal(t, dedupe.Gone, seen)
			case err == nil:
				require.Equal(t, dedupe.Own, seen)
				m.effects++
				wrote(payload, dedupe.Completed, m.attempts+1)
			case errors.Is(err, errHandler):
				b.faults = nil
				if after != nil {
					after(run)
				}
			case f == lose && b.balance() > m.effects:
				m.effects++
				wrote(payload, dedupe.Completed, m.attempts+1)
			}
			b.faults = nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"a delivery that works": func(t *rapid.T) { deliver(t, credit, nil) },
			"a delivery that fails": func(t *rapid.T) {
				deliver(t, failing(errHandler), func(run *dedupe.Run) {
					for {
						seen, err := run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
						require.NoError(t, err)
						if seen == dedupe.Fresh {
							continue
						}
						if seen == dedupe.Counted {
							record := b.record(t)
							wrote(record.PayloadHash[len("sha256:"):], dedupe.Failed, m.attempts+1)
						}
						return
					}
				})
			},
			"a delivery that cannot work": func(t *rapid.T) {
				deliver(t, failing(errHandler), func(run *dedupe.Run) {
					seen, err := run.Look(context.Background())
					require.NoError(t, err)
					if seen != dedupe.Fresh {
						return
					}
					seen, err = run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "unknown_product"})
					require.NoError(t, err)
					require.Equal(t, dedupe.Gone, seen)
					record := b.record(t)
					wrote(record.PayloadHash[len("sha256:"):], dedupe.DeadLettered, m.attempts+1)
				})
			},
			"time passes": func(t *rapid.T) {
				b.pass(rapid.SampledFrom([]time.Duration{time.Second, time.Hour, remember / 2, remember}).Draw(t, "time"))
			},
			"": func(t *rapid.T) {
				require.Equal(t, m.effects, b.balance())
				if !remembered() {
					return
				}
				record := b.record(t)
				require.Equal(t, m.status, record.Status)
				require.Equal(t, "sha256:"+m.payload, record.PayloadHash)
				require.EqualValues(t, m.attempts, record.Attempts)
			},
		})
	})
}

var errHandler = errors.New("the handler failed")
