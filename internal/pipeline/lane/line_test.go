package lane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// line is an ordered queue with messages of one ordering key: an ordered broker, and a worker that keeps the
// order by lanes alone.
type line struct {
	*stage
	// broker has the messages to be delivered, the first first; acked the acknowledged ones.
	broker, acked   []contract.Message
	arrived, closed []string
	// again has the next attempt of each event that has failed.
	again map[string]attempt
	story []string
}

type attempt struct {
	due    time.Time
	ticket string // of the message when it is published again
}

func (l *line) note(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf(format, args...))
}

func message(event string) contract.Message {
	return contract.Message{
		Data: []byte("{}"), Attributes: map[string]string{contract.AttrEventID: event}, OrderingKey: "k",
	}
}

func (l *line) event(*rapid.T) {
	l.arrived = append(l.arrived, fmt.Sprint("e", len(l.arrived)+1))
	l.broker = append(l.broker, message(l.arrived[len(l.arrived)-1]))
}

func (l *line) open(t require.TestingT) lane.Lane {
	return filetest.Must(lane.Open(context.Background(), l.db, lane.Name{Queue: "q", OrderingKey: "k"}))(t)
}

// commit commits a change of the lane, if there is one.
func (l *line) commit(t require.TestingT, change func(lane.Lane) ([]store.Write, bool)) {
	if writes, ok := change(l.open(t)); ok {
		_, err := l.db.Commit(context.Background(), writes)
		require.NoError(t, err, "no other actor runs between the read and the commit")
	}
}

func (l *line) keep(t require.TestingT, m contract.Message, due time.Time) (ticket string) {
	l.commit(t, func(found lane.Lane) (writes []store.Write, ok bool) {
		var err error
		ticket, writes, err = found.Put(lane.Kept{
			Topic: topic, Content: lane.Content{Message: m}, DueAt: due,
			Source: lane.Source{EventID: m.Attributes[contract.AttrEventID]},
		}, time.Time{}, "", l.now)
		require.NoError(t, err)
		return writes, true
	})
	return ticket
}

func (l *line) over(t require.TestingT, m contract.Message) {
	l.commit(t, func(found lane.Lane) ([]store.Write, bool) {
		w, ok := found.Over(m)
		return []store.Write{w}, ok
	})
}

// deliver delivers the first message of the broker. outcome is that of its attempt.
func (l *line) deliver(t require.TestingT, outcome func() string) {
	if len(l.broker) == 0 {
		return
	}
	m := l.broker[0]
	l.broker, l.acked = l.broker[1:], append(l.acked, m)
	event := m.Attributes[contract.AttrEventID]
	again := l.again[event]
	behind := l.open(t).Behind(m)
	switch {
	case slices.Contains(l.closed, event):
		l.over(t, m)
	case l.now.Before(again.due) && again.ticket != lane.Ticket(m):
	case behind:
		l.keep(t, m, time.Time{})
	default:
		l.attempt(t, m, outcome())
	}
	l.note("delivered %s %s, behind: %t", event, m.Attributes[contract.AttrDelayTicket], behind)
}

func (l *line) attempt(t require.TestingT, m contract.Message, outcome string) {
	event := m.Attributes[contract.AttrEventID]
	l.note("%s %s", event, outcome)
	switch outcome {
	case "is done", "is dead-lettered":
		l.close(t, event)
		l.over(t, m)
	case "fails":
		due := l.now.Add(20 * time.Minute)
		l.again[event] = attempt{due, l.keep(t, m, due)}
	}
}

// close ends an event, which is done or has its dead letter.
func (l *line) close(t require.TestingT, event string) {
	l.closed = append(l.closed, event)
	require.Equal(t, l.arrived[:len(l.closed)], l.closed, "in order: %s", strings.Join(l.story, "\n"))
}

// repeat has the broker deliver acknowledged messages again, with all that came after them.
func (l *line) repeat(t *rapid.T) {
	from := len(l.acked) - min(rapid.IntRange(1, 4).Draw(t, "messages"), len(l.acked))
	l.broker, l.acked = append(slices.Clone(l.acked[from:]), l.broker...), l.acked[:from]
	l.note("all from %d on again", from)
}

// TestMessagesOfAKeyAreHandledInOrderWithAnyWaits drives one ordering key whose messages fail, are done or
// are dead-lettered, while two relays run, fail and die.
func TestMessagesOfAKeyAreHandledInOrderWithAnyWaits(t *testing.T) {
	t.Parallel()
	play(t, lane.Delayed, func(t *rapid.T, s *stage) (func(contract.Message), func()) {
		l := &line{stage: s, again: map[string]attempt{}}
		return func(m contract.Message) { l.broker = append(l.broker, m) }, func() {
			none := func() []string { return nil }
			deliver := func(t *rapid.T) {
				l.deliver(t, func() string {
					return rapid.SampledFrom([]string{"is done", "fails", "is dead-lettered"}).Draw(t, "the attempt")
				})
			}
			if rapid.Bool().Draw(t, "two messages wait and are due") {
				l.event(t)
				l.event(t)
				l.deliver(t, func() string { return "fails" })
				l.deliver(t, nil)
				l.now = l.now.Add(21 * time.Minute)
			}
			t.Repeat(map[string]func(*rapid.T){
				"an event": l.event, "an event +": l.event, "a delivery": deliver, "a delivery +": deliver,
				"a delivery ++": deliver,
				"relay one":     l.relay(0, none), "relay one +": l.relay(0, none), "relay two": l.relay(1, none),
				"relay two +": l.relay(1, none),
				"repeat":      l.repeat,
				"time passes": func(t *rapid.T) {
					l.now = l.now.Add(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, 21 * time.Minute}).
						Draw(t, "time"))
				},
			})
			l.settle()
			atOnce := rapid.Bool().Draw(t, "in the end a relay runs after each delivery")
			relay := func(d time.Duration) {
				l.now = l.now.Add(d)
				l.start(l.actors[0], "")
				l.settle()
			}
			deliveries, enough := 0,
				100+(len(l.broker)+len(storetest.All(t, l.db, lane.Delayed.Entries())))*(1+len(l.arrived))*2
			rounds := 2*len(l.arrived) + 5
			for round := range rounds {
				// a lane whose last message was done before its relay ended is removed with the next message
				if round == rounds-2 {
					l.event(t)
				}
				relay(time.Hour)
				for len(l.broker) > 0 {
					l.deliver(t, func() string { return "is done" })
					if atOnce {
						relay(time.Microsecond)
					}
					deliveries++
					require.Less(t, deliveries, enough, "deliveries do not end: %s", strings.Join(l.story, "\n"))
				}
			}
			require.Equal(t, l.arrived, l.closed, "every event is done: %s", strings.Join(l.story, "\n"))
			require.Empty(t, storetest.All(t, l.db, lane.Delayed.Entries()))
			require.Empty(t, storetest.All(t, l.db, lane.Delayed.Lanes()),
				"a lane is removed with its last message, or with the next")
		}
	})
}

// newLine is a rig whose lane has e1, which is due.
func newLine(t *testing.T) (*rig, *line) {
	t.Helper()
	r := newRig(t, lane.Delayed)
	l := &line{stage: &stage{db: r.db, now: start}}
	l.keep(t, message("e1"), start)
	return r, l
}

// TestLaneIsRemovedWithItsLastMessage: earlier, a repeated message could overtake the last one.
func TestLaneIsRemovedWithItsLastMessage(t *testing.T) {
	t.Parallel()
	r, l := newLine(t)
	l.keep(t, message("e2"), time.Time{})
	over := func(m contract.Message) bool {
		_, ok := l.open(t).Over(m)
		return ok
	}
	r.broker.after = func() {
		require.False(t, over(r.broker.taken[len(r.broker.taken)-1]), "while its relay runs")
	}
	r.due(t, 10)
	require.Equal(t, []bool{false, false, true},
		[]bool{over(message("e2")), over(r.broker.taken[0]), over(r.broker.taken[1])})
	for _, next := range []string{"", "e3"} { // none waits, and one
		if next != "" {
			l.keep(t, message(next), time.Time{})
		}
		first, waiting := filetest.Both(lane.First(t.Context(), r.db, l.open(t), 10))(t)
		require.Equal(t, []any{next, int64(len(next) / 2)}, []any{first.EventID, waiting})
	}
}

// TestLaneStaysWhileAnotherRelayHasPublishedALaterMessage: a late relay does not remove it.
func TestLaneStaysWhileAnotherRelayHasPublishedALaterMessage(t *testing.T) {
	t.Parallel()
	r, l := newLine(t)
	other := &lane.Relay{Of: lane.Delayed, Store: r.db, Publisher: r.broker, Now: r.Now}
	r.broker.after = func() {
		r.broker.after = nil
		l.keep(t, message("e2"), time.Time{})
		require.NoError(t, filetest.ErrorOf(other.Due(t.Context(), 10, nil)))
	}
	r.due(t, 10)
	found := l.open(t)
	require.Equal(t, []string{"e1", "e1", "e2"}, events(r.broker.taken))
	require.False(t, found.Holds())
	for n, last := range []bool{false, false, true} {
		_, over := found.Over(r.broker.taken[n])
		require.Equal(t, last, over, "a new message of the key is behind e2")
	}
}

// TestFirstMessageOfAKeyWaitsForNoLaterOne: else they would wait for each other without end. Messages
// that are published together do not wait again, because the broker keeps their order.
func TestFirstMessageOfAKeyWaitsForNoLaterOne(t *testing.T) {
	t.Parallel()
	r, l := newLine(t)
	behind := func(m contract.Message) bool { return l.open(t).Behind(m) }
	l.keep(t, message("e2"), time.Time{})
	r.due(t, 10)
	l.keep(t, r.broker.taken[0], start) // it fails
	r.due(t, 10)
	require.True(t, behind(r.broker.taken[1]))
	l.keep(t, r.broker.taken[1], time.Time{}) // it is published after the first
	r.due(t, 10)
	require.Equal(t, []string{"e1", "e2", "e1", "e2"}, events(r.broker.taken))
	require.Equal(t, []bool{false, false}, []bool{behind(r.broker.taken[2]), behind(r.broker.taken[3])})
	require.True(t, behind(r.broker.taken[1]), "a repetition, while neither is done")

	r, l = newLine(t)
	r.due(t, 10)
	l.keep(t, message("e2"), time.Time{})
	l.keep(t, r.broker.taken[0], start) // it fails
	r.due(t, 10)
	require.Equal(t, []string{"e1", "e1", "e2"}, events(r.broker.taken))
	require.False(t, behind(r.broker.taken[2]), "published together")
}

func events(messages []contract.Message) []string {
	return filetest.Map(messages, func(m contract.Message) string { return m.Attributes["event_id"] })
}
