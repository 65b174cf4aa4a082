package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// topic confirms every message that Pub/Sub would take.
type topic struct {
	name string
	got  []contract.Message
	err  error
}

func (p *topic) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	if p.err != nil {
		return "", p.err
	}
	if err := m.Check(); err != nil {
		return "", err
	}
	p.name, p.got = topic, append(p.got, m)
	return "1", nil
}

// items keeps documents; only Create is asked of it.
type items struct {
	docs map[store.Key]map[string]any
	err  error
}

func (s *items) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	if _, there := s.docs[writes[0].Key]; there {
		return nil, store.ErrExists
	}
	if s.docs == nil {
		s.docs = map[store.Key]map[string]any{}
	}
	s.docs[writes[0].Key] = writes[0].Fields
	return []store.Version{1}, nil
}

func (s *items) Get(_ context.Context, key store.Key) (store.Document, error) {
	if fields, there := s.docs[key]; there {
		return store.Document{Key: key, Fields: fields, Version: 1}, s.err
	}
	return store.Document{}, store.ErrNotFound
}

func (s *items) only(t *testing.T) map[string]any {
	t.Helper()
	require.Len(t, s.docs, 1)
	for _, fields := range s.docs {
		return fields
	}
	return nil
}

var (
	queue = catalog.Queue{ID: "orders", DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour}}
	dead  = time.Date(2026, 3, 2, 10, 15, 0, 123_456_789, time.UTC)
)

func letter() deadletter.Letter {
	return deadletter.Letter{
		Message: contract.Message{
			Data: []byte(`{"eventId":"e1"}`), OrderingKey: "u1",
			Attributes: map[string]string{"event_id": "e1", "event_type": "order.paid", "ordering_key": "u1", "trace": "x"},
		},
		Reason: "unknown_product", Status: 422, Detail: "data.order.items[0]", SourceQueue: "orders",
		SourceSubscription: "orders-push", SourceMessageID: "17", Attempts: 2,
		FirstPublishedAt: dead.Add(-time.Hour), DeadLetteredAt: dead,
	}
}

func TestADeadLetterIsTheMessageAsItWasWithTheReason(t *testing.T) {
	t.Parallel()
	to := &topic{}
	require.NoError(t, deadletter.Publish(t.Context(), to, queue, letter()))
	require.Equal(t, "orders-dlq", to.name)
	require.Equal(t, []contract.Message{{
		Data: []byte(`{"eventId":"e1"}`),
		Attributes: map[string]string{
			"event_id": "e1", "event_type": "order.paid", "ordering_key": "u1", "trace": "x",
			"dead_letter_reason": "unknown_product", "dead_letter_status": "422", "dead_letter_detail": "data.order.items[0]",
			"source_queue": "orders", "source_subscription": "orders-push", "source_message_id": "17",
			"delivery_attempts": "2", "dead_lettered_at": "2026-03-02T10:15:00.123456789Z",
			"first_published_at": "2026-03-02T09:15:00.123456789Z", "replay_count": "0",
		},
	}}, to.got, "and no ordering key")
}

func TestADeadLetterThatDiesAgainHasTheNewReasonAndItsHistory(t *testing.T) {
	t.Parallel()
	to, l := &topic{}, letter()
	l.Message.Attributes = map[string]string{
		"dead_letter_reason": "old", "source_message_id": "1", "replay_count": "3", "first_published_at": "2026-01-01T00:00:00Z",
		"CloudPubSubDeadLetterSourceDeliveryCount": "20",
	}
	require.NoError(t, deadletter.Publish(t.Context(), to, queue, l))
	got := to.got[0].Attributes
	require.Equal(t, "unknown_product", got["dead_letter_reason"])
	require.Equal(t, "17", got["source_message_id"])
	require.Equal(t, "3", got["replay_count"])
	require.Equal(t, "2026-01-01T00:00:00Z", got["first_published_at"])
	require.NotContains(t, got, "CloudPubSubDeadLetterSourceDeliveryCount")
}

func TestAMessageWithFullAttributesCanStillBeDeadLettered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		own    func(map[string]string)
		detail string
	}{
		"95 of its own beside the contract's": {func(a map[string]string) {
			for i := range 95 {
				a[fmt.Sprintf("a%02d", i)] = "x"
			}
		}, "data.order.items[0]; 9 attributes left out or cut"},
		"a value longer than Pub/Sub takes": {func(a map[string]string) { a["a"] = strings.Repeat("ů", 600) }, "data.order.items[0]; 1 attributes left out or cut"},
		"a key longer than Pub/Sub takes":   {func(a map[string]string) { a[strings.Repeat("k", 257)] = "x" }, "data.order.items[0]; 1 attributes left out or cut"},
		"a key that is empty":               {func(a map[string]string) { a[""] = "x" }, "data.order.items[0]; 1 attributes left out or cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, l := &topic{}, letter()
			test.own(l.Message.Attributes)
			require.NoError(t, deadletter.Publish(t.Context(), to, queue, l))
			got := to.got[0].Attributes
			require.Equal(t, test.detail, got["dead_letter_detail"])
			require.Equal(t, "e1", got["event_id"], "the contract's go first")
			require.Equal(t, "unknown_product", got["dead_letter_reason"])
		})
	}
}

func TestADetailIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	to, l := &topic{}, letter()
	l.Detail = "x" + strings.Repeat("ů", 600)
	require.NoError(t, deadletter.Publish(t.Context(), to, queue, l))
	require.Equal(t, "x"+strings.Repeat("ů", 511), to.got[0].Attributes["dead_letter_detail"])
}

func TestAnyMessageOfPubSubCanBeDeadLettered(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(
		rapid.String(), rapid.StringMatching(`[a-z]{1,300}`),
		rapid.SampledFrom([]string{"event_id", "dead_letter_reason", "replay_count", "first_published_at", "CloudPubSubDeadLetterSourceDeliveryCount"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		to, l := &topic{}, letter()
		l.Message.Attributes = rapid.MapOfN(names, rapid.StringN(0, 1500, 3000), 0, 120).Draw(t, "attributes")
		l.Detail = rapid.StringN(0, 1500, 3000).Draw(t, "detail")
		require.NoError(t, deadletter.Publish(context.Background(), to, queue, l))
		s := &items{}
		fresh, err := deadletter.Keep(context.Background(), s, queue, to.got[0], "99", dead)
		require.NoError(t, err)
		require.True(t, fresh)
	})
}

func TestALetterThatIsNotConfirmedIsAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	require.ErrorIs(t, deadletter.Publish(t.Context(), &topic{err: cause}, queue, letter()), cause)
}

func published(t *testing.T) contract.Message {
	t.Helper()
	to := &topic{}
	require.NoError(t, deadletter.Publish(t.Context(), to, queue, letter()))
	return to.got[0]
}

func TestOneItemIsKeptPerSourceMessage(t *testing.T) {
	t.Parallel()
	s, m := &items{}, published(t)
	fresh, err := deadletter.Keep(t.Context(), s, queue, m, "101", dead)
	require.NoError(t, err)
	require.True(t, fresh)
	fresh, err = deadletter.Keep(t.Context(), s, queue, m, "102", dead) // a second copy of it
	require.NoError(t, err)
	require.False(t, fresh)
	item := s.only(t)
	for field, want := range map[string]any{
		"queue": "orders", "source_message_id": "17", "reason": "unknown_product", "status": int64(422),
		"detail": "data.order.items[0]", "attempts": int64(2), "event_id": "e1", "event_type": "order.paid", "ordering_key": "u1",
		"data": `{"eventId":"e1"}`, "dead_lettered_at": dead.Truncate(time.Microsecond), "kept_at": dead.Truncate(time.Microsecond),
		"expire_at": dead.Add(14 * 24 * time.Hour).Truncate(time.Microsecond),
	} {
		require.Equal(t, want, item[field], field)
	}
	require.Equal(t, "x", item["attributes"].(map[string]any)["trace"])

	m.Data = []byte("another, after an emulator has begun to count again")
	fresh, err = deadletter.Keep(t.Context(), s, queue, m, "103", dead)
	require.NoError(t, err)
	require.True(t, fresh)
}

func TestWhatTheBrokerDeadLettersItselfIsKeptToo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attributes map[string]string
		attempts   int64
	}{
		"without any attribute": {nil, 0},
		"with the broker's own": {map[string]string{"CloudPubSubDeadLetterSourceDeliveryCount": "20"}, 20},
		"after an earlier death and a replay": {map[string]string{
			"CloudPubSubDeadLetterSourceDeliveryCount": "20", "source_message_id": "17", "dead_letter_reason": "unknown_product",
			"dead_letter_status": "422", "delivery_attempts": "1",
		}, 20},
		"with a source id that is none":        {map[string]string{"source_message_id": strings.Repeat("/", 1024)}, 0},
		"with names that the store would keep": {map[string]string{"__name__": "x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &items{}
			fresh, err := deadletter.Keep(t.Context(), s, queue, contract.Message{Data: []byte("x"), Attributes: test.attributes}, "101", dead)
			require.NoError(t, err)
			require.True(t, fresh)
			item := s.only(t)
			require.Equal(t, "101", item["source_message_id"])
			require.Equal(t, "delivery_attempts_exhausted", item["reason"])
			require.Equal(t, int64(0), item["status"])
			require.Equal(t, test.attempts, item["attempts"])
		})
	}
}

func TestAPayloadIsKeptInAFormTheStoreTakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data  []byte
		field string
		want  any
	}{
		"text as it is":                      {[]byte("x"), "data", "x"},
		"nothing as nothing":                 {nil, "data", ""},
		"bytes in base64":                    {[]byte{0xff, 0xfe}, "data_base64", "//4="},
		"too much is left on the topic":      {make([]byte, 1<<20), "data_omitted", int64(1 << 20)},
		"too much in base64 is left as well": {append(make([]byte, 600<<10), 0xff), "data_omitted", int64(600<<10 + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &items{}
			_, err := deadletter.Keep(t.Context(), s, queue, contract.Message{Data: test.data}, "101", dead)
			require.NoError(t, err)
			require.Equal(t, test.want, s.only(t)[test.field])
		})
	}
}

func TestAStoreThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	_, err := deadletter.Keep(t.Context(), &items{err: cause}, queue, published(t), "101", dead)
	require.ErrorIs(t, err, cause)
}
