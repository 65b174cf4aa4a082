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
	for name, m := range map[string]contract.Message{
		"too large":                 {Data: make([]byte, contract.MaxKept+1)},
		"an attribute of no text":   {Data: []byte("{}"), Attributes: map[string]string{"a": "\xff"}},
		"with a name that is taken": {Data: []byte("{}"), Attributes: map[string]string{"__name__": "x"}},
		"with no room for a ticket": {Data: []byte("{}"), Attributes: many(contract.MaxAttributes)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, writes, err := l.Put(lane.Waiting{Topic: "q", Message: m}, start)
			require.ErrorIs(t, err, lane.ErrUnfit)
			require.Empty(t, writes)
		})
	}
}

func many(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[strings.Repeat("a", i+1)] = "x"
	}
	return all
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
