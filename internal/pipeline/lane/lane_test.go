package lane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// empty is a store without documents.
type empty struct{}

func (empty) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, store.ErrNotFound
}

func ticketed(ticket string) contract.Message {
	return contract.Message{Data: []byte("{}"), Attributes: map[string]string{contract.AttrDelayTicket: ticket}}
}

func TestATicketIsOneOrItIsNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1-1": "1-1", "1-2": "1-2", "1-2-3": "1-2", "1-2-1": "1-2",
		"": "", "1": "", "2-1": "", "0-1": "", "1-0": "", "-1-1": "", "a-b": "", "1-2-": "", "1-2-3-4": "", "1-99999999999999999999": "", "1-4611686018427387904": "",
	} {
		require.Equal(t, want, lane.Ticket(ticketed(text)), text)
	}
	require.Empty(t, lane.Ticket(contract.Message{}))
}

func TestAMessageThatNoDocumentHoldsIsNotKept(t *testing.T) {
	t.Parallel()
	l, err := lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", Message: "e1"})
	require.NoError(t, err)
	_, _, err = l.Put(lane.Waiting{Topic: "q", Message: contract.Message{Data: make([]byte, contract.MaxKept)}}, start)
	require.NoError(t, err, "the largest")
	full := map[string]string{}
	for i := range contract.MaxAttributes {
		full[strings.Repeat("a", i+1)] = "x"
	}
	for name, m := range map[string]contract.Message{
		"too large":                 {Data: make([]byte, contract.MaxKept+1)},
		"an attribute of no text":   {Data: []byte("{}"), Attributes: map[string]string{"a": "\xff"}},
		"with a name that is taken": {Data: []byte("{}"), Attributes: map[string]string{"__name__": "x"}},
		"with no room for a ticket": {Data: []byte("{}"), Attributes: full},
	} {
		_, writes, err := l.Put(lane.Waiting{Topic: "q", Message: m}, start)
		require.ErrorIs(t, err, lane.ErrUnfit, name)
		require.Empty(t, writes)
	}
}

// TestAWaitingMessageKeepsWhenAndAsWhatItWasFirstDelivered: one that waits again has these attributes.
func TestAWaitingMessageKeepsWhenAndAsWhatItWasFirstDelivered(t *testing.T) {
	t.Parallel()
	l, err := lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", Message: "e1"})
	require.NoError(t, err)
	for _, test := range []struct {
		carries map[string]string
		first   time.Time
		id      string
		want    map[string]string
	}{
		{nil, start, "m-1", map[string]string{contract.AttrFirstPublished: start.Format(time.RFC3339Nano), contract.AttrFirstMessageID: "m-1"}},
		{map[string]string{contract.AttrFirstPublished: "then", contract.AttrFirstMessageID: "m-0"}, start, "m-1", map[string]string{contract.AttrFirstPublished: "then", contract.AttrFirstMessageID: "m-0"}},
		{nil, time.Time{}, "", map[string]string{}},
	} {
		ticket, writes, err := l.Put(lane.Waiting{FirstPublished: test.first, MessageID: test.id, Message: contract.Message{Data: []byte("{}"), Attributes: test.carries}}, start)
		require.NoError(t, err)
		kept, err := lane.KeptOf(store.Document{Key: writes[0].Key, Fields: writes[0].Fields})
		require.NoError(t, err)
		require.False(t, kept.Emitted, "it waits for an attempt")
		test.want[contract.AttrDelayTicket] = ticket
		require.Equal(t, test.want, kept.Message.Attributes)
	}
}

// FuzzTicket: whatever a message claims, putting it aside gives it a ticket that is one.
func FuzzTicket(f *testing.F) {
	for _, seed := range []string{"", "1-1", "1-2-3", "4611686018427387903-4611686018427387903", "-", "1772446500000000-1772446500000001-7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", OrderingKey: "k"})
		require.NoError(t, err)
		require.False(t, l.Behind(ticketed(text)), "there is no lane")
		ticket, writes, err := l.Put(lane.Waiting{Topic: "q", Message: ticketed(text), Due: start.Add(time.Hour)}, start)
		require.NoError(t, err)
		require.NoError(t, store.CheckWrites(writes))
		if !strings.HasSuffix(ticket, "-4611686018427387904") { // one more than there are numbers
			require.Equal(t, ticket, lane.Ticket(ticketed(ticket)))
		}
		require.NotEqual(t, text, ticket)
	})
}
