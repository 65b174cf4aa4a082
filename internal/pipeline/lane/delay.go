package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/store"
)

// ErrUnfit: the message cannot be kept in a document.
var ErrUnfit = errors.New("lane: the message cannot be kept")

// Waiting is a message to be put into a lane.
type Waiting struct {
	Topic          string
	Message        contract.Message
	FirstPublished time.Time
	// MessageID is the broker's, of the message as it was delivered.
	MessageID string
	// Tenant and EventID are the event's.
	Tenant, EventID string
	// Due is when it is published; zero: right after those before it.
	Due time.Time
	// Timer: its sender has set Due, and no attempt of it waits for that.
	Timer bool
}

// Put returns the writes that put a message into the lane as it was read, and its ticket. The error is ErrUnfit.
func (l Lane) Put(w Waiting, now time.Time) (ticketed string, writes []store.Write, err error) {
	now = moment(now)
	t, again := ticketOf(w.Message)
	// It rises even where the lane was gone, and where clocks differ.
	t.number = max(now.UnixMicro(), l.Last+1, t.number+1)
	if !again {
		t.rank = t.number
	}
	m := w.Message
	m.Attributes = map[string]string{}
	maps.Copy(m.Attributes, w.Message.Attributes)
	m.Attributes[contract.AttrDelayTicket] = t.String()
	if m.Attributes[contract.AttrFirstPublished] == "" && !w.FirstPublished.IsZero() {
		m.Attributes[contract.AttrFirstPublished] = w.FirstPublished.UTC().Format(time.RFC3339Nano)
	}
	if m.Attributes[contract.AttrFirstMessageID] == "" && w.MessageID != "" {
		m.Attributes[contract.AttrFirstMessageID] = w.MessageID
	}
	m.OrderingKey = cmp.Or(m.OrderingKey, l.name.OrderingKey)
	e := Kept{Topic: w.Topic, Message: m, CreatedAt: now, Source: Source{Queue: l.name.Queue, Tenant: w.Tenant, EventID: w.EventID}, Timer: w.Timer}
	due := now
	if !w.Due.IsZero() {
		due = moment(w.Due)
		e.DueAt = due
	}
	id := l.entryID(t)
	next := l.head
	next.Last, next.Newest, next.ExpireAt = t.number, max(l.Newest, id), time.Time{}
	if again { // messages that were published behind it have to wait again
		next.Held = t.number
	}
	if !l.Holds() { // a lane that holds messages is due when its oldest is
		next.DueAt, next.OldestAt = due, due
	}
	writes = []store.Write{store.Create(store.Key{Collection: Delayed.Entries(), ID: id}, store.Encode(&e)), l.replace(next)}
	if len(m.Data) > contract.MaxKept || m.Check() != nil || store.CheckWrites(writes) != nil {
		return "", nil, ErrUnfit
	}
	return t.String(), writes, nil
}

// Over returns the write that removes the lane of a delivered message; ok reports whether it was the lane's last.
func (l Lane) Over(m contract.Message) (w store.Write, ok bool) {
	t, _ := ticketOf(m) // no entry has the id of no ticket
	if l.Holds() || l.entryID(t) != l.Newest {
		return store.Write{}, false
	}
	return store.Delete(l.key, l.version), true
}

func (l Lane) entryID(t ticket) string {
	return fmt.Sprintf("%s-%020d-%020d", l.key.ID, t.rank, t.number)
}

type ticket struct {
	rank, number int64
	// published is the last number of its lane when the message was published; 0 before that.
	published int64
}

func (t ticket) String() string { return fmt.Sprintf("%d-%d", t.rank, t.number) }

// Ticket is the ticket of a message that comes back; empty for any other message.
func Ticket(m contract.Message) string {
	t, ok := ticketOf(m)
	if !ok {
		return ""
	}
	return t.String()
}

// stamp adds the last number of the lane to the ticket of a message that leaves it, if it has one.
func (l Lane) stamp(m contract.Message) contract.Message {
	if t, ok := ticketOf(m); ok {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[contract.AttrDelayTicket] = t.String() + "-" + strconv.FormatInt(l.Last, 10)
	}
	return m
}

// ticketOf reads the ticket of a message; ok reports whether it has one.
func ticketOf(m contract.Message) (t ticket, ok bool) {
	var parts [3]int64
	texts := strings.Split(m.Attributes[contract.AttrDelayTicket], "-")
	if len(texts) < 2 || len(texts) > 3 {
		return ticket{}, false
	}
	for i, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 || n >= 1<<62 {
			return ticket{}, false
		}
		parts[i] = n
	}
	if parts[0] > parts[1] {
		return ticket{}, false
	}
	return ticket{rank: parts[0], number: parts[1], published: parts[2]}, true
}

// Outbox reports whether the message waits to be published at once.
func (k Kept) Outbox() bool { return k.lane.Collection == Outbox.Lanes() }

// LineOf reads the lane of a message that waits, and the event whose message is its next to be published, which is empty
// where there is none: two reads. A lane that is gone by now does not exist, and has no first.
func LineOf(ctx context.Context, from store.Store, k Kept) (line Lane, first Source, err error) {
	doc, err := store.Find(ctx, from, k.lane)
	if line = laneOf(doc); err != nil || !line.Exists() {
		return line, first, err
	}
	next, _, err := next(ctx, from, line)
	return line, next.Source, err
}

func next(ctx context.Context, from store.Querier, of Lane) (first Kept, found bool, err error) {
	entries, _, err := store.List(ctx, from, of.entries(1), KeptOf)
	if err != nil || len(entries) == 0 {
		return Kept{}, false, err
	}
	return entries[0], true, nil
}

func (l Lane) entries(limit int) store.Query {
	return store.Query{Collection: strings.TrimSuffix(l.key.Collection, "Keys"), IDPrefix: l.key.ID + "-", Limit: limit}
}

// KeptOf reads an entry of either kind.
func KeptOf(doc store.Document) (Kept, error) {
	var k Kept
	if err := store.Decode(doc.Fields, &k); err != nil {
		return Kept{}, fmt.Errorf("lane: entry %s is not readable", doc.Key.ID)
	}
	id, _, _ := strings.Cut(doc.Key.ID, "-")
	k.lane = store.Key{Collection: Kind(doc.Key.Collection).Lanes(), ID: id}
	k.Emitted = doc.Key.Collection == Outbox.Entries() || strings.HasSuffix(doc.Key.ID, emitted)
	return k, nil
}

// Keys returns the lanes of a queue's ordering keys, at most limit, and whether there are more.
func Keys(ctx context.Context, from store.Querier, queue string, limit int) (keys []Lane, more bool, err error) {
	keys, err = lanesOf(ctx, from, Delayed, store.Query{Equal: map[string]any{"queue": queue}, Limit: limit + 1})
	return keys[:min(len(keys), limit)], len(keys) > limit, err
}

// First returns the message of a lane that is published next, and how many wait there, counted up to limit.
func First(ctx context.Context, from store.Querier, of Lane, limit int) (first Kept, waiting int64, err error) {
	first, found, err := next(ctx, from, of)
	if err != nil || !found {
		return Kept{}, 0, err
	}
	query := of.entries(limit)
	query.Count = true
	page, err := from.Query(ctx, query)
	if err != nil {
		return Kept{}, 0, fmt.Errorf("lane: read: %w", err)
	}
	return first, page.Count, nil
}
