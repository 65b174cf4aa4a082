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

// Open reads the lane of delayed messages that has this name.
func Open(ctx context.Context, from store.Getter, name Name) (Lane, error) {
	doc, err := store.Find(ctx, from, store.Key{Collection: Delayed.Lanes(), ID: name.id()})
	l := laneOf(doc)
	l.name = name
	if l.Stays = name.OrderingKey != ""; l.Stays {
		l.QueueID = name.Queue
	}
	return l, err
}

// Behind reports whether a message must wait: it has never waited, or an earlier message was put into the
// lane again after this one was published. It never waits for a later message, which would be a deadlock.
func (l Lane) Behind(m contract.Message) bool {
	if !l.Exists() || !l.Stays {
		return false
	}
	t, ok := ticketOf(m)
	return !ok || len(l.before(t)) > 0
}

// before returns the messages of lower rank that were put into the lane again after t was published.
func (l Lane) before(t ticket) (before []again) {
	for _, a := range l.Again {
		if a.Rank < t.rank && a.Number > t.published {
			before = append(before, a)
		}
	}
	return before
}

// maxAgain bounds how many messages Again distinguishes. With more, some wait once more than necessary.
const maxAgain = 16

// putAgain returns the lane's Again after t was put into it again. It leaves out those before t that were
// delivered before t was, and those after t, because they wait for t.
func (l Lane) putAgain(t ticket) []again {
	all := l.before(t)
	if n := len(all); n == maxAgain { // t and the last merge: a message that waits for either waits for both
		all[n-1].Number = t.number
		return all
	}
	return append(all, again{Rank: t.rank, Number: t.number})
}

// ErrUnfit: the message cannot be kept in a document.
var ErrUnfit = errors.New("lane: the message cannot be kept")

// Put returns a message's ticket, and the writes that put it into the lane as it was read. The message is due
// right after those before it, or later at its DueAt, and keeps its first time and id. The error is ErrUnfit.
func (l Lane) Put(
	k Kept, firstPublished time.Time, firstID string, now time.Time,
) (ticketed string, writes []store.Write, err error) {
	k.CreatedAt, k.DueAt, k.Queue = moment(now), moment(k.DueAt), l.name.Queue
	t, again := ticketOf(k.Message)
	// The number rises even after the lane was removed, and if clocks differ.
	t.number = max(k.CreatedAt.UnixMicro(), l.Last+1, t.number+1)
	if !again {
		t.rank = t.number
	}
	attributes := map[string]string{}
	maps.Copy(attributes, k.Message.Attributes)
	attributes[contract.AttrDelayTicket] = t.String()
	if attributes[contract.AttrFirstPublished] == "" && !firstPublished.IsZero() {
		attributes[contract.AttrFirstPublished] = firstPublished.UTC().Format(time.RFC3339Nano)
	}
	if attributes[contract.AttrFirstMessageID] == "" && firstID != "" {
		attributes[contract.AttrFirstMessageID] = firstID
	}
	k.Message.Attributes, k.Message.OrderingKey = attributes, cmp.Or(k.Message.OrderingKey, l.name.OrderingKey)
	id := l.entryID(t)
	next := l.head
	next.Last, next.Newest, next.ExpireAt = t.number, max(l.Newest, id), time.Time{}
	if again { // messages that were published after it have to wait again
		next.Again = l.putAgain(t)
	}
	if !l.Holds() { // else the lane is already due, with its oldest message
		next.DueAt = cmp.Or(k.DueAt, k.CreatedAt)
		next.OldestAt = next.DueAt
	}
	key := store.Key{Collection: Delayed.Entries(), ID: id}
	writes = []store.Write{store.Create(key, store.Encode(&k)), l.replace(next)}
	if len(k.Message.Data) > contract.MaxKept || k.Message.Check() != nil || store.CheckWrites(writes) != nil {
		return "", nil, ErrUnfit
	}
	return t.String(), writes, nil
}

// Over returns the write that removes a delivered message's lane; ok: the message was the lane's last.
func (l Lane) Over(m contract.Message) (w store.Write, ok bool) {
	t, _ := ticketOf(m) // no entry has the id of the zero ticket
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
	published    int64 // the lane's last number when the message was published; 0 before that
}

func (t ticket) String() string { return fmt.Sprintf("%d-%d", t.rank, t.number) }

// Ticket returns the ticket of a message that has waited in a lane; empty for any other message.
func Ticket(m contract.Message) string {
	t, ok := ticketOf(m)
	if !ok {
		return ""
	}
	return t.String()
}

// stamp adds the lane's last number to the ticket of a message that the lane publishes.
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
