// Package delayed owns messages that wait longer than the broker can: for an attempt
// that is due later, for a time of delivery, or behind another message of their
// ordering key that waits. It owns their place in line. It refuses to decide that a
// message waits, and publishes nothing itself: the outbox's relay does, from
// collections of its own.
//
// A message keeps its rank among those of its ordering key from the moment that it is
// first put aside until it is through; each time that it is put aside it gets a new
// ticket, rank and number, which comes back with it, and with the last number that its
// lane had given out when it was published: what was put aside again since then, and
// comes before it, it has to wait for. The lane of a key stays after its messages are
// published, until the last of them has been delivered: what the broker holds of that
// key before it has yet to be put behind it.
package delayed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/outbox"
	"billhook/internal/store"
)

// The collections: a document of the first is a message, one of the second a lane.
const (
	Collection     = "delayed"
	KeysCollection = "delayedKeys"
)

// ErrUnfit: the message cannot be kept in a document.
var ErrUnfit = errors.New("delayed: the message cannot be kept")

// maxKept is the largest message that is kept: half of what a document holds.
const maxKept = 512 << 10

// NewRelay returns the relay that publishes what is due.
func NewRelay(s outbox.Store, publisher outbox.Publisher, now func() time.Time) *outbox.Relay {
	return &outbox.Relay{Store: s, Publisher: publisher, Now: now, Entries: Collection, Lanes: KeysCollection, Stamp: stamp}
}

// stamp writes into a message that is published the last number of its lane.
func stamp(lane store.Document, m *contract.Message) {
	last, _ := lane.Fields["last"].(int64)
	m.Attributes[contract.AttrDelayTicket] = Ticket(*m) + "-" + strconv.FormatInt(last, 10)
}

// Ticket is that of a message that comes back; empty for any other.
func Ticket(m contract.Message) string {
	rank, number, _, ok := parse(m.Attributes[contract.AttrDelayTicket])
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d-%d", rank, number)
}

// Getter reads a document; see the store package for the errors.
type Getter interface {
	Get(ctx context.Context, key store.Key) (store.Document, error)
}

// Name names a lane.
type Name struct {
	Queue string
	// OrderingKey is what messages of the lane have in common; empty: the lane is for
	// one message alone.
	OrderingKey string
	// Message is something unique to that one message.
	Message string
}

func (n Name) key() store.Key {
	text := n.Queue + "\x00" + n.OrderingKey
	if n.OrderingKey == "" {
		text += "\x00" + n.Message
	}
	// Hashed, so that lanes are spread over the database's ranges.
	sum := sha256.Sum256([]byte(text))
	return store.Key{Collection: KeysCollection, ID: hex.EncodeToString(sum[:12])}
}

// label writes into the lane of an ordering key whose it is, for Calm.
func (n Name) label(lane map[string]any) {
	if n.OrderingKey != "" {
		lane["queue"] = n.Queue
	}
}

// Lane is a lane as it was read.
type Lane struct {
	name    Name
	version store.Version // 0: there is none
	// last is the greatest number given out, held that of the last message that was put
	// aside again.
	last, held int64
	// newest is the entry that was published last, or is to be.
	newest string
	due    time.Time // zero: everything in it is published
	// stopped: it waits for a person.
	stopped bool
}

// Open reads the lane of a name.
func Open(ctx context.Context, from Getter, name Name) (Lane, error) {
	doc, err := from.Get(ctx, name.key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Lane{name: name}, nil
	case err != nil:
		return Lane{}, fmt.Errorf("delayed: read lane: %w", err)
	}
	l := Lane{name: name, version: doc.Version}
	l.last, _ = doc.Fields["last"].(int64)
	l.held, _ = doc.Fields["held"].(int64)
	l.newest, _ = doc.Fields["newest"].(string)
	l.due, _ = doc.Fields["due_at"].(time.Time)
	l.stopped, _ = doc.Fields["stopped"].(bool)
	return l, nil
}

// Queue is that of the lane.
func (l Lane) Queue() string { return l.name.Queue }

// Exists reports whether the lane was there when it was read.
func (l Lane) Exists() bool { return l.version != 0 }

// Holds reports whether a message of the lane waits to be published.
func (l Lane) Holds() bool { return !l.due.IsZero() }

// Behind reports whether a message must wait behind one of the lane. What has never
// waited comes after all that have; what comes back does so in order, and waits again
// only where one before it does.
func (l Lane) Behind(m contract.Message) bool {
	if l.version == 0 || l.name.OrderingKey == "" {
		return false
	}
	_, _, published, ok := parse(m.Attributes[contract.AttrDelayTicket])
	return !ok || published < l.held
}

// Waiting is a message to be put aside.
type Waiting struct {
	Topic          string
	Message        contract.Message
	FirstPublished time.Time
	// MessageID is the broker's, of the message as it was delivered.
	MessageID string
	// Tenant and EventID say whose it is.
	Tenant, EventID string
	// Due is when it is published; zero: right after those before it.
	Due time.Time
}

// Put returns the writes that put a message into the lane, and the ticket with which
// it will come back. They are refused with store.ErrExists or store.ErrStale where the
// lane is no longer as it was read. The error is ErrUnfit.
func (l Lane) Put(w Waiting, now time.Time) (ticket string, writes []store.Write, err error) {
	now = now.UTC().Truncate(time.Microsecond)
	rank, earlier, _, known := parse(w.Message.Attributes[contract.AttrDelayTicket])
	// A time, so that numbers rise also where the lane was gone; and never less than any
	// seen, so that they rise where clocks differ.
	number := max(now.UnixMicro(), l.last+1, earlier+1)
	if !known {
		rank = number
	}
	ticket = fmt.Sprintf("%d-%d", rank, number)
	m := w.Message
	m.Attributes = maps.Clone(m.Attributes)
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	m.Attributes[contract.AttrDelayTicket] = ticket
	if m.Attributes[contract.AttrFirstPublished] == "" && !w.FirstPublished.IsZero() {
		m.Attributes[contract.AttrFirstPublished] = w.FirstPublished.UTC().Format(time.RFC3339Nano)
	}
	if m.Attributes[contract.AttrFirstMessageID] == "" && w.MessageID != "" {
		m.Attributes[contract.AttrFirstMessageID] = w.MessageID
	}
	if m.OrderingKey == "" {
		m.OrderingKey = l.name.OrderingKey
	}
	entry := map[string]any{
		"topic": w.Topic, "message": m.Fields(), "created_at": now,
		"queue": l.name.Queue, "tenant": w.Tenant, "event_id": w.EventID,
	}
	key := l.name.key()
	id := entryID(key, rank, number)
	due, held := now, l.held
	if !w.Due.IsZero() {
		due = w.Due.UTC().Truncate(time.Microsecond)
		entry["due_at"] = due
	}
	if known { // what was published behind it has to wait again; else nothing was
		held = number
	}
	if l.Holds() {
		due = l.due // whoever joins a lane changes nothing of when it is looked at
	}
	lane := map[string]any{
		"due_at": due, "oldest_at": due, "last": number, "held": held, "newest": max(l.newest, id), "stays": l.name.OrderingKey != "",
	}
	if l.stopped {
		lane["stopped"] = true
	}
	l.name.label(lane)
	writes = []store.Write{
		store.Create(store.Key{Collection: Collection, ID: id}, entry),
		store.Create(key, lane),
	}
	if l.version != 0 {
		writes[1] = store.Update(key, l.version, lane)
	}
	if len(m.Data) > maxKept || m.Check() != nil || store.CheckWrites(writes) != nil {
		return "", nil, ErrUnfit
	}
	return ticket, writes, nil
}

// never is when a stopped lane is due.
var never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Stop returns the write that stops the lane: whatever comes of its key from now on is
// put aside behind it, until Go. ok is false where it is stopped already. What holds a
// key up this way is a dead letter that a person has to look at.
func (l Lane) Stop(now time.Time) (w store.Write, ok bool) {
	if l.stopped || l.name.OrderingKey == "" {
		return store.Write{}, false
	}
	number := max(now.UnixMicro(), l.last+1)
	lane := map[string]any{
		// What was published before this comes back to the stopped lane, too.
		"due_at": never, "oldest_at": never, "last": number, "held": number, "newest": l.newest, "stays": true, "stopped": true,
	}
	l.name.label(lane)
	if l.version == 0 {
		return store.Create(l.name.key(), lane), true
	}
	return store.Update(l.name.key(), l.version, lane), true
}

// Go returns the write that lets a stopped lane go on: what it holds is published, in
// order. ok is false where it is not stopped.
func (l Lane) Go(now time.Time) (w store.Write, ok bool) {
	switch {
	case l.version == 0 || !l.stopped:
		return store.Write{}, false
	case l.newest == "": // nothing has come behind it
		return store.Delete(l.name.key(), l.version), true
	}
	now = now.UTC().Truncate(time.Microsecond)
	lane := map[string]any{
		"due_at": now, "oldest_at": now, "last": l.last, "held": l.held, "newest": l.newest, "stays": true,
	}
	l.name.label(lane)
	return store.Update(l.name.key(), l.version, lane), true
}

// Over returns the write that removes the lane, where the message, which has been
// delivered, was the last of it; ok reports whether it was.
func (l Lane) Over(m contract.Message) (w store.Write, ok bool) {
	rank, number, _, ok := parse(m.Attributes[contract.AttrDelayTicket])
	key := l.name.key()
	if !ok || l.version == 0 || l.name.OrderingKey == "" || l.Holds() || entryID(key, rank, number) != l.newest {
		return store.Write{}, false
	}
	return store.Delete(key, l.version), true
}

// entryID: within a lane the order is that of the ranks.
func entryID(lane store.Key, rank, number int64) string {
	return fmt.Sprintf("%s-%020d-%020d", lane.ID, rank, number)
}

// parse reads a ticket; published is 0 where it has not been published yet.
func parse(ticket string) (rank, number, published int64, ok bool) {
	var parts [3]int64
	texts := strings.Split(ticket, "-")
	if len(texts) < 2 || len(texts) > 3 {
		return 0, 0, 0, false
	}
	for i, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 || n >= 1<<62 {
			return 0, 0, 0, false
		}
		parts[i] = n
	}
	return parts[0], parts[1], parts[2], parts[0] <= parts[1]
}
