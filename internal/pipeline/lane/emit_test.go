package lane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func TestEmissionsAreCommittedWithTheirLanes(t *testing.T) {
	t.Parallel()
	own := store.Create(store.Key{Collection: "own", ID: "x"}, nil)
	effect := handler.Effect{Writes: []store.Write{own}, Emit: []handler.Emission{
		emission("sub-1", "first"), emission("sub-2", "second"), emission("sub-1", "third"), emission("", "fourth"),
		emission("", "fifth"),
	}}
	event := handler.Event{Queue: "q", Tenant: "acme", ID: "e1"}
	emitted := filetest.Must(lane.Emit(declared, event, &effect, start.Add(500)))(t)
	require.Len(t, emitted.Lanes, 4, "each emission without a key has its own lane")
	require.Equal(t, own, effect.Writes[0])
	newest := map[string]string{}
	for n, w := range effect.Writes[1:6] {
		of, _, _ := strings.Cut(w.Key.ID, "-")
		require.Equal(t, store.OpCreate, w.Op,
			"an existing id is a conflict, and is not overwritten")
		require.Less(t, newest[of], w.Key.ID, "ids of a lane rise")
		newest[of] = w.Key.ID
		kept := filetest.Must(lane.KeptOf(store.Document{Key: w.Key, Fields: w.Fields}))(t)
		require.Equal(t, []any{
			start, topic, lane.Source{Queue: "q", Tenant: "acme", EventID: "e1", Emits: lane.ID(event, n)},
		}, []any{kept.CreatedAt, kept.Topic, kept.Source})
		require.Equal(t, effect.Emit[n].OrderingKey, kept.Message.OrderingKey)
		attributes := kept.Message.Attributes
		require.Equal(t, []string{lane.ID(event, n), "acme"},
			[]string{attributes[contract.AttrEventID], attributes[contract.AttrTenant]})
		require.Equal(t, attributes[contract.AttrEventType], attributes[contract.AttrRoutingKey],
			"by which the topic's queues take it")
	}
	for i, w := range effect.Writes[6:] {
		fields := map[string]any{
			"newest": newest[emitted.Lanes[i]], "due_at": start.Add(30 * time.Second), "oldest_at": start,
		}
		require.Equal(t, store.Set(store.Key{Collection: lane.Outbox.Lanes(), ID: emitted.Lanes[i]}, fields), w,
			"a lane may be there already")
	}
}

func TestInvalidEmissionIsRejected(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*handler.Emission, *contract.Envelope){
		"a body that breaks its contract": func(_ *handler.Emission, m *contract.Envelope) { m.Action = "" },
		"an ordering key that is no id": func(e *handler.Emission, _ *contract.Envelope) {
			e.OrderingKey = "ilse@example.org"
		},
		"a correlation id that is no id": func(_ *handler.Emission, m *contract.Envelope) {
			m.CorrelationID = "a/b"
		},
		"a string of the body not UTF-8": func(_ *handler.Emission, m *contract.Envelope) {
			m.Payload.Status = "\xff"
		},
		"a time of more than a month": func(e *handler.Emission, _ *contract.Envelope) {
			e.Due = start.Add(contract.MaxAhead + 1)
		},
	} {
		last, bad := later("x"), emission("sub-2", "bad")
		last.Due = start.Add(contract.MaxAhead)
		m, err := contract.As[*contract.Envelope](bad.Body)
		require.NoError(t, err, name)
		_, err = lane.Emit(declared, emitter, &handler.Effect{Emit: []handler.Emission{last, bad}}, start)
		require.NoError(t, err, "before it is changed")
		spoil(&bad, m)
		_, err = lane.Emit(declared, emitter, &handler.Effect{Emit: []handler.Emission{last, bad}}, start)
		require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "emission_invalid", Counts: true},
			retry.Decide(err), name)
		require.NotContains(t, err.Error(), "ilse", name)
	}
}

// later is an emission of the ordering key k that is due in 15 minutes, under a name.
func later(name string) handler.Emission {
	e := emission("k", "later")
	e.Due, e.Name = start.Add(15*time.Minute), name
	return e
}

// emitter is the event that emits in these tests; withdrawer may withdraw the emission.
var (
	emitter    = handler.Event{Queue: "q", Tenant: "acme", ID: "e1"}
	withdrawer = handler.Event{Queue: "q", Tenant: "acme", ID: "e2"}
)

func TestDelayedEmissionIsPublishedWhenDueAndItsLaneRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, lane.Delayed)
	emitted, err := r.commit(t, emitter,
		handler.Effect{Emit: []handler.Emission{later("timeout o1"), emission("k", "now")}})
	require.NoError(t, err)
	require.Equal(t, []string{lane.ID(emitter, 0), lane.ID(emitter, 1)}, handler.EmittedIDs(emitted.Messages))
	require.Len(t, emitted.Lanes, 1, "the lane of the emission that is published now")
	require.Equal(t, start.Add(15*time.Minute), emitted.Due)
	own := filetest.Must(lane.Open(t.Context(), r.db, lane.Name{Queue: "q", OrderingKey: "k"}))(t)
	_, some := filetest.Both(lane.Keys(t.Context(), r.db, "q", 0))(t)
	require.Equal(t, []bool{false, false}, []bool{own.Exists(), some}, "it delays no message of its key")
	page, err := r.db.Query(t.Context(), store.Query{
		Collection: lane.Delayed.Entries(), Equal: map[string]any{"emits": lane.ID(emitter, 0)}, Limit: 2,
	})
	require.NoError(t, err)
	kept := filetest.Must(lane.KeptOf(page.Documents[0]))(t)
	require.Equal(t, []bool{false, true}, []bool{kept.Outbox(), kept.Emitted})
	line, first, err := lane.LineOf(t.Context(), r.db, kept)
	require.NoError(t, err)
	require.True(t, line.Exists())
	require.Equal(t, lane.Source{Queue: "q", Tenant: "acme", EventID: "e1", Emits: lane.ID(emitter, 0)}, first,
		"its source is the emitting event")
	r.now = start.Add(15*time.Minute - time.Microsecond)
	report, _ := r.due(t, 10)
	require.Zero(t, report.Published, "it is not due")
	r.now = start.Add(15 * time.Minute)
	report, _ = r.due(t, 10)
	require.Equal(t, lane.Report{Lanes: 1, Published: 1}, report)
	require.Equal(t, []string{"later"}, r.broker.published())
	require.Equal(t, lane.ID(emitter, 0), r.broker.taken[0].Attributes[contract.AttrEventID])
	require.Empty(t, lane.Ticket(r.broker.taken[0]), "it has not been delivered before")
	require.Equal(t, [2]int{}, r.left(t))
	for _, event := range []handler.Event{emitter, withdrawer} {
		_, err = r.commit(t, event, handler.Effect{Emit: []handler.Emission{later("")}})
		require.NoError(t, err, "without a name its id is its name")
	}
}

func TestDelayedEmissionIsWithdrawnByItsName(t *testing.T) {
	t.Parallel()
	type row struct {
		by   handler.Event
		name string
		left int
		late bool // while the relay publishes it
	}
	filetest.Each(t, map[string]row{
		"by another event of its queue and tenant": {
			withdrawer, "timeout o1", 0, false,
		},
		"too late, and published once": {
			withdrawer, "timeout o1", 1, true,
		},
		"not by another name":    {withdrawer, "timeout o2", 1, false},
		"not for another tenant": {handler.Event{Queue: "q", Tenant: "other", ID: "e2"}, "timeout o1", 1, false},
		"not from another queue": {handler.Event{Queue: "p", Tenant: "acme", ID: "e2"}, "timeout o1", 1, false},
	}, func(t *testing.T, test row) {
		r := newRig(t, lane.Delayed)
		_, err := r.commit(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
		require.NoError(t, err)
		_, err = r.commit(t, withdrawer, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
		require.ErrorIs(t, err, store.ErrExists, "a waiting name cannot be used twice")
		withdraw := func() {
			for range 2 { // an unknown name is ignored
				_, err := r.commit(t, test.by, handler.Effect{Withdraw: []string{test.name}})
				require.NoError(t, err)
			}
		}
		if r.broker.after = withdraw; !test.late {
			withdraw()
			require.Equal(t, [2]int{test.left, test.left}, r.left(t))
		}
		r.now = start.Add(time.Hour)
		report, failed := r.due(t, 10)
		require.Equal(t, test.left, report.Published)
		require.Empty(t, failed)
		require.Len(t, r.broker.taken, test.left)
		require.Equal(t, [2]int{}, r.left(t))
	})
}

type empty struct{}

func (empty) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, store.ErrNotFound
}

func ticketed(ticket string) contract.Message {
	return contract.Message{Data: []byte("{}"), Attributes: map[string]string{contract.AttrDelayTicket: ticket}}
}

func TestTicketIsReadOrIgnored(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1-1": "1-1", "1-2": "1-2", "1-2-3": "1-2", "1-2-1": "1-2",
		"": "", "1": "", "2-1": "", "0-1": "", "1-0": "", "-1-1": "", "a-b": "", "1-2-": "", "1-2-3-4": "",
		"1-99999999999999999999": "", "1-4611686018427387904": "",
	} {
		require.Equal(t, want, lane.Ticket(ticketed(text)), text)
	}
	require.Empty(t, lane.Ticket(contract.Message{}))
}

func TestMessageTooLargeForADocumentIsNotKept(t *testing.T) {
	t.Parallel()
	l := filetest.Must(lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", Message: "e1"}))(t)
	_, _, err := l.Put(lane.Kept{
		Topic: "q", Content: lane.Content{Message: contract.Message{Data: make([]byte, contract.MaxKept)}},
	}, start, "", start)
	require.NoError(t, err, "the largest")
	full := map[string]string{}
	for i := range contract.MaxAttributes {
		full[strings.Repeat("a", i+1)] = "x"
	}
	for name, m := range map[string]contract.Message{
		"too large":                         {Data: make([]byte, contract.MaxKept+1)},
		"an attribute that is not UTF-8":    {Data: []byte("{}"), Attributes: map[string]string{"a": "\xff"}},
		"an attribute with a reserved name": {Data: []byte("{}"), Attributes: map[string]string{"__name__": "x"}},
		"no room for the ticket":            {Data: []byte("{}"), Attributes: full},
	} {
		_, writes, err := l.Put(lane.Kept{Topic: "q", Content: lane.Content{Message: m}}, time.Time{}, "", start)
		require.ErrorIs(t, err, lane.ErrUnfit, name)
		require.Empty(t, writes)
	}
}

// TestWaitingMessageKeepsItsFirstTimeAndID: also when it waits again.
func TestWaitingMessageKeepsItsFirstTimeAndID(t *testing.T) {
	t.Parallel()
	l := filetest.Must(lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", Message: "e1"}))(t)
	for _, test := range []struct {
		carries map[string]string
		first   time.Time
		id      string
		want    map[string]string
	}{
		{
			nil, start, "m-1", map[string]string{
				contract.AttrFirstPublished: start.Format(time.RFC3339Nano), contract.AttrFirstMessageID: "m-1",
			},
		},
		{
			map[string]string{contract.AttrFirstPublished: "then", contract.AttrFirstMessageID: "m-0"},
			start, "m-1",
			map[string]string{contract.AttrFirstPublished: "then", contract.AttrFirstMessageID: "m-0"},
		},
		{nil, time.Time{}, "", map[string]string{}},
	} {
		ticket, writes, err := l.Put(lane.Kept{
			Content: lane.Content{Message: contract.Message{Data: []byte("{}"), Attributes: test.carries}},
		}, test.first, test.id, start)
		require.NoError(t, err)
		kept := filetest.Must(lane.KeptOf(store.Document{Key: writes[0].Key, Fields: writes[0].Fields}))(t)
		require.False(t, kept.Emitted, "it waits for an attempt")
		test.want[contract.AttrDelayTicket] = ticket
		require.Equal(t, test.want, kept.Message.Attributes)
	}
}

// FuzzTicket: a message with any ticket gets a valid one when it is kept.
func FuzzTicket(f *testing.F) {
	for _, seed := range []string{
		"", "1-1", "1-2-3", "4611686018427387903-4611686018427387903", "-", "1772446500000000-1772446500000001-7",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := filetest.Must(lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", OrderingKey: "k"}))(t)
		require.False(t, l.Behind(ticketed(text)), "there is no lane")
		ticket, writes, err := l.Put(lane.Kept{
			Topic: "q", Content: lane.Content{Message: ticketed(text)}, DueAt: start.Add(time.Hour),
		}, start, "", start)
		require.NoError(t, err)
		require.NoError(t, store.CheckWrites(writes))
		if !strings.HasSuffix(ticket, "-4611686018427387904") { // the largest number has no next one
			require.Equal(t, ticket, lane.Ticket(ticketed(ticket)))
		}
		require.NotEqual(t, text, ticket)
	})
}
