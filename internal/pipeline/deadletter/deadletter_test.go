package deadletter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// forwarded is the attribute of the dead letters that Pub/Sub forwards itself.
const forwarded = "CloudPubSubDeadLetterSourceDeliveryCount"

var (
	kept  = catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour}
	queue = catalog.Queue{ID: "orders", DeadLetter: kept}
	dead  = time.Date(2026, 3, 2, 10, 15, 0, 123_456_789, time.UTC)
)

// broker keeps the last message, if Pub/Sub would accept it.
type broker struct {
	topic string
	last  contract.Message
	err   error
}

func (b *broker) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	b.topic, b.last = topic, m
	return "1", cmp.Or(b.err, m.Check())
}

func stored(t *testing.T, db store.Querier) store.Document {
	t.Helper()
	all := storetest.All(t, db, deadletter.Collection)
	require.Len(t, all, 1)
	return all[0]
}

func deadMessage() deadletter.Item {
	return deadletter.Item{
		Original: deadletter.Original{
			Data: []byte(`{"eventId":"e1"}`),
			Attributes: map[string]string{
				"event_id": "e1", "event_type": "order.paid", "ordering_key": "u1", "trace": "x",
			},
		},
		Death: deadletter.Death{Reason: "unknown_product", Status: 422, Attempts: 2}, Detail: "data.order.items[0]",
		Source: deadletter.Source{SourceMessageID: "17", OrderingKey: "u1"},
		Times:  deadletter.Times{FirstPublished: dead.Add(-time.Hour), DeadLettered: dead},
	}
}

func TestDeadLetterIsTheMessageWithTheReason(t *testing.T) {
	t.Parallel()
	m := published(t, deadMessage())
	require.Equal(t, contract.Message{
		Data: []byte(`{"eventId":"e1"}`),
		Attributes: map[string]string{
			"event_id": "e1", "event_type": "order.paid", "ordering_key": "u1", "trace": "x",
			"dead_letter_reason": "unknown_product", "dead_letter_status": "422",
			"dead_letter_detail": "data.order.items[0]", "delivery_attempts": "2", "replay_count": "0",
			"source_queue": "orders", "source_subscription": "orders-push", "source_message_id": "17",
			"dead_lettered_at":   "2026-03-02T10:15:00.123456789Z",
			"first_published_at": "2026-03-02T09:15:00.123456789Z",
		},
	}, m, "without an ordering key")

	again := deadMessage()
	again.Attributes = map[string]string{
		"dead_letter_reason": "old", "source_message_id": "1", "replay_count": "3", forwarded: "20",
		"first_published_at": "2026-01-01T00:00:00Z",
	}
	got := published(t, again).Attributes
	for name, want := range map[string]string{
		"dead_letter_reason": "unknown_product", "source_message_id": "17", "replay_count": "3",
		"first_published_at": "2026-01-01T00:00:00Z",
	} {
		require.Equal(t, want, got[name], "a replay keeps its history")
	}
	require.NotContains(t, got, forwarded)
}

func published(t *testing.T, l deadletter.Item) contract.Message {
	t.Helper()
	to := &broker{}
	require.NoError(t, deadletter.Publish(t.Context(), to, queue, "", l))
	require.Equal(t, "orders-dlq", to.topic)
	return to.last
}

func TestDeadLetterThatCannotBePublishedOrKeptIsAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	require.ErrorIs(t, deadletter.Publish(t.Context(), &broker{err: cause}, queue, "", deadMessage()), cause)
	db := &storetest.Faults{Store: storetest.Open(t)}
	db.FailBefore(1)
	_, err := deadletter.Keep(t.Context(), db, queue, published(t, deadMessage()), "101", dead)
	require.ErrorIs(t, err, storetest.ErrFault)
}

func TestMessageWithFullAttributesIsDeadLettered(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 95 {
		many[fmt.Sprintf("a%02d", i)] = "x"
	}
	for name, test := range map[string]struct {
		own  map[string]string
		lost int
	}{
		"95 of its own beside the contract's": {many, 9},
		"a value longer than Pub/Sub takes":   {map[string]string{"a": strings.Repeat("ů", 600)}, 1},
		"a key longer than Pub/Sub takes":     {map[string]string{strings.Repeat("k", 257): "x"}, 1},
		"an empty key":                        {map[string]string{"": "x"}, 1},
	} {
		l := deadMessage()
		maps.Copy(l.Attributes, test.own)
		got := published(t, l).Attributes
		want := fmt.Sprintf("data.order.items[0]; %d attributes left out or cut", test.lost)
		require.Equal(t, want, got["dead_letter_detail"], name)
		require.Equal(t, "e1", got["event_id"], "the contract's attributes go first")
		require.Equal(t, "unknown_product", got["dead_letter_reason"], name)
	}
	l := deadMessage()
	l.Detail = "x" + strings.Repeat("ů", 600)
	detail := published(t, l).Attributes["dead_letter_detail"]
	require.Equal(t, "x"+strings.Repeat("ů", 511), detail, "cut between characters")
}

func TestAnyMessageOfPubSubIsDeadLettered(t *testing.T) {
	t.Parallel()
	known := []string{"event_id", "dead_letter_reason", "replay_count", "first_published_at", forwarded}
	names := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z]{1,300}`), rapid.SampledFrom(known))
	db, deaths := storetest.Open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		deaths++
		to, l := &broker{}, deadMessage()
		l.SourceMessageID = fmt.Sprint(deaths)
		l.Attributes = rapid.MapOfN(names, rapid.StringN(0, 1500, 3000), 0, 120).Draw(t, "attributes")
		l.Detail = rapid.StringN(0, 1500, 3000).Draw(t, "detail")
		require.NoError(t, deadletter.Publish(context.Background(), to, queue, "", l))
		fresh := filetest.Must(deadletter.Keep(context.Background(), db, queue, to.last, "99", dead))(t)
		require.True(t, fresh)
	})
}

func TestOneItemIsKeptPerSourceMessage(t *testing.T) {
	t.Parallel()
	db, m := storetest.Open(t), published(t, deadMessage())
	require.True(t, filetest.Must(deadletter.Keep(t.Context(), db, queue, m, "101", dead))(t))
	require.False(t, filetest.Must(deadletter.Keep(t.Context(), db, queue, m, "102", dead))(t), "a second copy")
	m.Data = []byte("another, after an emulator has begun to count again")
	require.True(t, filetest.Must(deadletter.Keep(t.Context(), db, queue, m, "103", dead))(t))
}

func TestDeadLetterOfTheBrokerIsKeptInAFormThatTheStoreTakes(t *testing.T) {
	t.Parallel()
	sized := func(bytes int) contract.Message {
		return contract.Message{Data: append(make([]byte, bytes-1), 0xff)}
	}
	again := func(replayOf string) map[string]string {
		return map[string]string{"replay_count": "1", "replay_of": replayOf}
	}
	noID := map[string]string{"source_message_id": strings.Repeat("/", 1024)}
	of := func(attributes map[string]string) contract.Message {
		return contract.Message{Data: []byte("x"), Attributes: attributes}
	}
	for name, test := range map[string]struct {
		message contract.Message
		field   string
		want    any
	}{
		"text":                  {of(nil), "data", "x"},
		"an empty message":      {contract.Message{}, "data", ""},
		"bytes, in base64":      {contract.Message{Data: []byte{0xff, 0xfe}}, "data_base64", "//4="},
		"too large for an item": {contract.Message{Data: make([]byte, 1<<20)}, "data_omitted", int64(1 << 20)},
		"too large in base64":   {sized(600<<10 + 1), "data_omitted", int64(600<<10 + 1)},
		"without any attribute": {of(nil), "attempts", int64(0)},
		"with the broker's own": {of(map[string]string{forwarded: "20"}), "attempts", int64(20)},
		"after an earlier death and a replay": {of(map[string]string{
			forwarded: "20", "source_message_id": "17", "dead_letter_reason": "unknown_product",
			"dead_letter_status": "422", "delivery_attempts": "1",
		}), "attempts", int64(20)},
		"with an invalid source id":      {of(noID), "attempts", int64(0)},
		"with a name that is reserved":   {of(map[string]string{"__name__": "x"}), "attempts", int64(0)},
		"of a replay of an unknown item": {of(again("nothing")), "replay_count", int64(1)},
		"of a replay of an invalid id":   {of(again("a/b")), "replay_count", int64(1)},
	} {
		db := storetest.Open(t)
		require.True(t, filetest.Must(deadletter.Keep(t.Context(), db, queue, test.message, "101", dead))(t), name)
		item := stored(t, db).Fields
		require.Equal(t, []any{test.want, "101", "delivery_attempts_exhausted", int64(0)},
			[]any{item[test.field], item["source_message_id"], item["reason"], item["status"]}, name)
	}
}

func TestUnreadableEntryOfALaneIsKept(t *testing.T) {
	t.Parallel()
	message := contract.Message{Data: []byte("x"), Attributes: map[string]string{"event_id": "e1"}}
	for sentence, test := range map[string]struct {
		fields map[string]any
		data   any
		event  string
	}{
		"its message": {map[string]any{"message": store.Encode(&message), "event_id": "another"}, "x", "e1"},
		"without one": {map[string]any{"topic": int64(7), "event_id": "e2"}, `{"event_id":"e2","topic":7}`, ""},
	} {
		db := storetest.Open(t)
		doc := store.Document{Key: store.Key{Collection: "delayed", ID: "l-1"}, Fields: test.fields}
		storetest.Put(t, db, deadletter.Unreadable(queue, doc, dead)...)
		item := stored(t, db).Fields
		for field, want := range map[string]any{
			"data": test.data, "event_id": test.event, "detail": "l-1", "source_message_id": "l-1",
			"reason": deadletter.EntryUnreadable, "status": int64(400),
		} {
			require.Equal(t, want, item[field], "%s: %s", sentence, field)
		}
	}
}

func TestItemDescribesWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	for want, item := range map[string]deadletter.Item{
		"dead again":    {State: deadletter.Open, Death: deadletter.Death{ReplayCount: 1}},
		"still open":    {State: deadletter.Open},
		"still waiting": {State: deadletter.Replayed},
		"completed by hand": {
			State: deadletter.Completed,
		},
		"duplicate": {State: deadletter.Processed, Resolution: deadletter.Resolution{Outcome: retry.Duplicate}},
		"discarded": {State: deadletter.Discarded},
	} {
		require.Equal(t, want, item.Became())
	}
}

func TestItemThatIsCorrectedBeforeItArrivesIsShownAndFilled(t *testing.T) {
	t.Parallel()
	db, first := storetest.Open(t), published(t, deadMessage())
	id := deadletter.ItemID(queue, "17", first)
	storetest.Put(t, db, deadletter.Correct(queue, id, "e1", "77", dead))
	replayed := deadMessage() // and its item was removed before
	replayed.Attributes[deadletter.AttrReplayOf] = id
	replayed.Attributes[deadletter.AttrReplayCount] = "1"
	for step, arrives := range []contract.Message{{}, published(t, replayed), first} {
		if step > 0 {
			filetest.Must(deadletter.Keep(t.Context(), db, queue, arrives, "101", dead))(t)
		}
		item := filetest.Must(deadletter.ItemOf(stored(t, db)))(t)
		require.Equal(t, []any{id, deadletter.Corrected, "e1"}, []any{item.ID, item.State, item.EventID})
		require.Equal(t, step == 2, len(item.Data) > 0 && item.Reason == "unknown_product")
	}
}

func TestItemIDIsThatOfTheReplayedItemOrOfTheMessage(t *testing.T) {
	t.Parallel()
	m := contract.Message{Data: []byte("x")}
	own := deadletter.ItemID(queue, "101", m)
	for attribute, want := range map[string]string{
		"": own, "0123456789abcdef-orders~7": "0123456789abcdef-orders~7", "0123456789abcdef-refunds~7": own,
		"a/b-orders~7": own, "anything": own,
	} {
		m.Attributes = map[string]string{"replay_of": attribute}
		require.Equal(t, want, deadletter.ItemID(queue, "101", m), attribute)
	}
}
