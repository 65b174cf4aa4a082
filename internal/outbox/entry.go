// Package outbox owns the messages that an effect emits: they are committed with the
// effect, published after it, at least once, and removed. It owns their ids, their
// order per ordering key, and what is done when publishing fails. It refuses to
// decide what is emitted, and never publishes what is not committed. Replays go
// through it too, and its relay serves package delayed from other collections.
//
// Two collections. An entry of outbox is one message. A document of outboxKeys is one
// lane, a topic's ordering key that has entries, and says when it is due to be
// relayed: a relay looks for lanes that are due, and at nothing else.
package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"billhook/internal/contract"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// The collections.
const (
	Collection     = "outbox"
	KeysCollection = "outboxKeys"
)

// grace is how long a new lane is left to the worker that made it, which publishes
// right after its commit.
const grace = 30 * time.Second

// namespace of the ids of emitted messages; any fixed one would do.
var namespace = uuid.MustParse("6e6f7468-696e-572d-8c6f-73742d747769")

// ID is the event id of the n-th message (0 is the first) that an event emits. It is
// the same however often the event is handled, so that whoever consumes the message
// knows it again.
func ID(event handler.Event, n int) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%q %q %q %d", event.Queue, event.Tenant, event.ID, n)).String()
}

// Add gives the effect's emissions their ids and times, and adds the writes that
// commit them to the effect's; contracts say what they may hold. It returns the lanes to relay once that is committed.
// The error, for an emission that no broker would take, is marked permanent.
func Add(contracts *contract.Set, event handler.Event, effect *handler.Effect, now time.Time) (lanes []string, err error) {
	batch := NewBatch(now)
	for n := range effect.Emit {
		emission := &effect.Emit[n]
		id := ID(event, n)
		body, message, err := contracts.Compose(emission.Body, contract.Stamp{ID: id, Tenant: event.Tenant, OrderingKey: emission.OrderingKey, At: batch.now})
		if err != nil {
			return nil, retry.Permanent("emission_invalid", err)
		}
		emission.Body = body
		batch.Add(emission.Topic, id, message, Source{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID})
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	return batch.Lanes(), nil
}

// Source is what a message in the outbox comes from.
type Source struct{ Queue, Tenant, EventID string }

// Batch collects messages that are to be committed together.
type Batch struct {
	now    time.Time
	writes []store.Write
	lanes  []string
	newest map[string]string // lane -> its last entry
	count  int
}

// NewBatch returns an empty batch of the given moment.
func NewBatch(now time.Time) *Batch {
	return &Batch{now: now.UTC().Truncate(time.Microsecond), newest: map[string]string{}}
}

// Add adds a message, which has an id of its own, behind those of its topic and
// ordering key.
func (b *Batch) Add(topic, id string, m contract.Message, from Source) {
	lane := laneOf(topic, m.OrderingKey, id)
	// Within a lane the order is that of the commits' times, then that of the batch.
	entry := fmt.Sprintf("%s-%020d-%03d-%s", lane, b.now.UnixMicro(), b.count, id)
	b.count++
	b.writes = append(b.writes, store.Create(store.Key{Collection: Collection, ID: entry}, map[string]any{
		"topic": topic, "message": m.Fields(), "created_at": b.now,
		"queue": from.Queue, "tenant": from.Tenant, "event_id": from.EventID,
	}))
	if b.newest[lane] == "" {
		b.lanes = append(b.lanes, lane)
	}
	b.newest[lane] = entry
}

// Lanes are what is to be relayed once the batch is committed.
func (b *Batch) Lanes() []string { return b.lanes }

// Writes returns what commits the batch: an entry for each message, and a document for
// each lane.
func (b *Batch) Writes() []store.Write {
	writes := b.writes
	for _, lane := range b.lanes {
		// Set, and with the newest entry in it: it changes the version whatever was there,
		// so that a relay that has not seen the entry cannot remove the lane.
		writes = append(writes, store.Set(store.Key{Collection: KeysCollection, ID: lane}, map[string]any{
			"newest": b.newest[lane], "due_at": b.now.Add(grace), "oldest_at": b.now,
		}))
	}
	return writes
}

// laneOf is the id of the lane that a message goes through: a hash, so that lanes are
// spread over the database's ranges. What has no ordering key has a lane of its own.
func laneOf(topic, orderingKey, id string) string {
	if orderingKey == "" {
		orderingKey = "\x00" + id
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + orderingKey))
	return hex.EncodeToString(sum[:12])
}
