package push

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/pii"
	"billhook/internal/platform/serve/servetest"
	"billhook/internal/retry"
)

// BodyBudget sets the budget of the bodies in flight, and reports whether so many bytes are in use.
func (s *Service) BodyBudget(bytes int64) (free func(but int) bool) {
	own := semaphore.NewWeighted(bytes)
	s.bodies = own
	return func(but int) bool {
		free := own.TryAcquire(bytes - int64(but))
		if free {
			own.Release(bytes - int64(but))
		}
		return free
	}
}

// Dispositions prints the table of dispositions. The last row of each state fits always.
func Dispositions() string {
	text := strings.Builder{}
	text.WriteString("| the message is not handled, since | and | so |\n| --- | --- | --- |\n")
	for i, r := range dispositions {
		when := filetest.Map(r.when, func(c condition) string { return c.text })
		if last := i+1 == len(dispositions) || dispositions[i+1].state != r.state; last != (len(when) == 0) {
			panic(r.state)
		}
		fmt.Fprintf(&text, "| %s | %s | `%s` |\n", r.state, strings.Join(when, ", and "), r.then)
	}
	return text.String()
}

func TestThePageOfAnswersHasEachAnswerToAPush(t *testing.T) {
	t.Parallel()
	text := "| outcome | where | answer |\n| --- | --- | --- |\n"
	for i, row := range statuses {
		otherwise := "always"
		if i > 0 && row.of[0] == statuses[i-1].of[0] {
			otherwise = "else"
		}
		outcomes := filetest.Map(row.of, func(of retry.Outcome) string { return "`" + string(of) + "`" })
		code := "that of its failure"
		if row.code != 0 {
			code = strconv.Itoa(row.code)
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", strings.Join(outcomes, ", "), cmp.Or(row.when, otherwise), code)
	}
	const begin, end = "<!-- statuses: go test ./internal/pipeline/push -update -->\n",
		"<!-- end of statuses -->"
	text += "\nA push that is not admitted has no outcome:\n\n" + servetest.Table(refusals)
	filetest.Part(t, text, begin, end, "../../../docs/reference/answers.md")
}

// notPushes are bodies that are no push requests.
var notPushes = []string{
	``, `null`, `[]`, `nonsense`, `{"message":{"messageId":"1"}}{"message":{"messageId":"2"}}`,
	`{"message":{}}`, `{"message":{"messageId":""}}`, `{"message":{"messageId":"a/b"}}`,
	`{"message":{"messageid":"1"}}`,
	`{"message":{"messageId":"` + strings.Repeat("1", 1500) + `"}}`,
	`{"message":{"messageId":"1","data":"***"}}`, `{"message":{"messageId":"1","data":"_-_-"}}`,
	`{"message":{"messageId":"1","attributes":{"a":1}}}`,
	`{"message":{"messageId":"1","attributes":{"a":"1","a":"2"}}}`,
	`{"message":{"messageId":"1"},"message":{"messageId":"2"}}`,
	`{"message":{"messageId":"1","publishTime":"yesterday"}}`,
	`{"message":{"messageId":"1"},"deliveryAttempt":1e400}`,
	"{\"message\":{\"messageId\":\"1\",\"attributes\":{\"a\":\"\xff\"}}}",
	strings.Repeat(`{"message":`, 100_000),
}

func TestBodyThatIsNoPushRequestIsRefused(t *testing.T) {
	t.Parallel()
	for _, body := range notPushes {
		_, err := decodeEnvelope([]byte(body))
		require.Equal(t, errEnvelope, err, "%.80s", body)
	}
	_, err := decodeEnvelope([]byte(`{"new":[1,{"deep":null}],"message":{"newer":1e400,"messageId":"1"}}`))
	require.NoError(t, err, "unknown members are passed over")
}

// FuzzDecodeEnvelope: any body is refused by the one error, which holds nothing of it, or gives an envelope
// that is decoded alike after it is encoded.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"message":{"data":"e30=","attributes":{"event_id":"1"},"messageId":"1","message_id":"1","orderingKey":"k",
		"publishTime":"2026-03-02T10:15:00.123Z"},"subscription":"projects/p/subscriptions/s","deliveryAttempt":2}`,
		`{"message":{"messageId":"1","data":null,"attributes":null}}`,
		`{"message":{"messageId":"1"},"subscription":"////"}`, `{}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := decodeEnvelope(body)
		if err != nil {
			require.Equal(t, errEnvelope, err)
			return
		}
		require.True(t, pii.ID.Valid(d.messageID))
		again, err := json.Marshal(map[string]any{
			"message": map[string]any{
				"data": d.message.Data, "attributes": d.message.Attributes, "messageId": d.messageID,
				"orderingKey": d.message.OrderingKey, "publishTime": d.publishedAt,
			},
			"deliveryAttempt": d.number,
		})
		require.NoError(t, err)
		same := filetest.Must(decodeEnvelope(again))(t)
		require.True(t, d.publishedAt.Equal(same.publishedAt))
		same.publishedAt = d.publishedAt
		if len(d.message.Data) == 0 {
			d.message.Data, same.message.Data = nil, nil
		}
		require.Equal(t, d, same)
	})
}

// RealTimer is a handler.Timer on the clock.
func RealTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func newSlots(n int) *slots {
	ended, drain := context.WithCancel(context.Background())
	return &slots{waits: &waits{timer: RealTimer, ended: ended, drain: drain}, free: n}
}

type caller struct {
	key   string
	leave context.CancelFunc
	over  atomic.Bool
	got   bool
}

func acquire(s *slots, key string, size int, patience time.Duration) *caller {
	ctx, leave := context.WithCancel(context.Background())
	a := &caller{key: key, leave: leave}
	go func() {
		a.got = s.acquire(ctx, key, size, patience)
		a.over.Store(true)
	}()
	synctest.Wait()
	return a
}

func (c *caller) holds() bool { return c.over.Load() && c.got }

func (s *slots) unused(t *testing.T, free int) {
	t.Helper()
	require.Equal(t, []int{free, 0, 0, 0}, []int{s.free, s.bytes, len(s.keys), len(s.waiting)})
}

func TestWaitForASlotIsBoundedInNumberAndBytes(t *testing.T) {
	t.Parallel()
	for size, fit := range map[int]int{1: maxWaiting, maxWaitingBytes / 4: 4} {
		filetest.Bubble(t, func(t *testing.T) {
			s := newSlots(1)
			require.True(t, acquire(s, "", 1, time.Second).holds())
			first := acquire(s, "0", size, time.Hour)
			for i := range fit - 1 {
				require.False(t, acquire(s, fmt.Sprint(i%3), size, time.Hour).over.Load())
			}
			beyond := acquire(s, "beyond", size, time.Hour)
			require.Equal(t, []bool{true, false}, []bool{beyond.over.Load(), beyond.got}, "at once")
			first.leave()
			synctest.Wait()
			again := acquire(s, "beyond", size, time.Hour)
			require.False(t, again.over.Load(), "a caller that leaves frees a place")
			for range fit {
				s.release()
			}
			synctest.Wait()
			require.True(t, again.holds())
			s.unused(t, 0)
		})
	}
}

func TestWaitForASlotEnds(t *testing.T) {
	t.Parallel()
	type end func(s *slots, a *caller)
	for name, test := range map[string]struct {
		patience time.Duration
		end      end
	}{
		"when its patience is over": {2 * time.Second, func(*slots, *caller) { <-time.After(2 * time.Second) }},
		"when the service drains":   {time.Hour, func(s *slots, _ *caller) { s.drain() }},
		"at once without patience":  {0, func(*slots, *caller) {}},
		"with its slot, which is passed on": {
			time.Hour,
			func(s *slots, _ *caller) { s.mu.Lock(); s.handOver(); s.drain(); s.mu.Unlock() },
		},
		"before its slot, which it loses": {
			time.Hour,
			func(s *slots, _ *caller) { s.mu.Lock(); s.drain(); s.handOver(); s.mu.Unlock() },
		},
	} {
		filetest.Bubble(t, func(t *testing.T) {
			s := newSlots(1)
			require.True(t, acquire(s, "", 1, time.Second).holds())
			a := acquire(s, "k", 1, test.patience)
			test.end(s, a)
			synctest.Wait()
			require.True(t, a.over.Load(), name)
			require.False(t, a.got)
			if s.free == 0 {
				s.release()
			}
			s.unused(t, 1)
		})
	}
	s := newSlots(1)
	s.drain()
	require.False(t, s.acquire(t.Context(), "k", 1, time.Hour), "before it begins, where the service drains")
	s.unused(t, 1)
}

// TestSlotsAreGivenByKeysInTurn holds slots to the plainest model: the waiting messages by key, and the next
// key.
func TestSlotsAreGivenByKeysInTurn(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		// Without the deadline of the real time, which a bubble does not know.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			s := newSlots(rapid.IntRange(1, 3).Draw(t, "slots"))
			free, holding := s.free, 0
			var ring []string // keys, the next first
			waiting := map[string][]*caller{}
			takeOut := func(a *caller) {
				waiting[a.key] = slices.DeleteFunc(waiting[a.key], func(other *caller) bool { return other == a })
				if len(waiting[a.key]) == 0 {
					delete(waiting, a.key)
					ring = slices.DeleteFunc(ring, func(key string) bool { return key == a.key })
				}
			}
			all := func() (list []*caller) {
				for _, key := range slices.Sorted(maps.Keys(waiting)) {
					list = append(list, waiting[key]...)
				}
				return list
			}
			t.Repeat(map[string]func(*rapid.T){
				"a message": func(t *rapid.T) {
					a := acquire(s, rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "key"), 10, time.Hour)
					if free > 0 {
						free, holding = free-1, holding+1
						require.True(t, a.holds())
						return
					}
					require.False(t, a.over.Load())
					if len(waiting[a.key]) == 0 {
						ring = append(ring, a.key)
					}
					waiting[a.key] = append(waiting[a.key], a)
				},
				"one is done": func(t *rapid.T) {
					if holding == 0 {
						return
					}
					s.release()
					synctest.Wait()
					if len(ring) == 0 {
						free, holding = free+1, holding-1
						return
					}
					next := waiting[ring[0]][0]
					ring = append(ring[1:], ring[0])
					takeOut(next)
					require.True(t, next.holds(), "%s is next", next.key)
				},
				"one leaves": func(t *rapid.T) {
					if len(waiting) == 0 {
						return
					}
					a := rapid.SampledFrom(all()).Draw(t, "who")
					a.leave()
					synctest.Wait()
					require.True(t, a.over.Load())
					require.False(t, a.got)
					takeOut(a)
				},
				"": func(t *rapid.T) {
					for _, a := range all() {
						require.False(t, a.over.Load(), "no waiting message has a slot out of turn")
					}
					require.Equal(t, []int{free, len(all()), 10 * len(all()), len(ring)},
						[]int{s.free, len(s.waiting), s.bytes, len(s.keys)})
				},
			})
			for _, a := range all() {
				a.leave()
			}
			synctest.Wait()
		})
	})
}
