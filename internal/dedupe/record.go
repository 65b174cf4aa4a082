// Package dedupe owns the idempotency record of an event, which is also its line in the job log, and the
// state machine that makes an effect happen once. It does not know what an effect is, how an event arrived,
// or how it is answered.
package dedupe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Collection holds the records.
const Collection = "webhookEvents"

// DefaultTenant is the tenant of an event that names none.
const DefaultTenant = contract.DefaultTenant

// Status is the state of an event.
type Status string

// The statuses of a record.
const (
	Processing   Status = "PROCESSING"    // a worker has it
	Completed    Status = "COMPLETED"     // its effect took place, or it needs none
	Failed       Status = "FAILED"        // an attempt failed, and another one follows
	DeadLettered Status = "DEAD_LETTERED" // it waits for a person
)

// Record is what is stored about one event of one queue and tenant.
type Record struct {
	Identity `store:",inline"`
	Status   Status `store:"status,required"`
	Tries    `store:",inline"`
	Delay    `store:",inline"`
	// Corrected has the hashes of the payloads that this one replaced, oldest first; the hash of a broken one is
	// empty.
	Corrected []string `store:"corrected,omitzero"`
	// DeadLetters are the known open dead letters under the id.
	DeadLetters []string `store:"dead_letters,omitzero"`
	// Again: the dead letters belong to this very payload, which is tried once more.
	Again   bool              `store:"again,omitzero"`
	Emitted []handler.Emitted `store:"emitted,omitzero"`
	Result  string            `store:"result"`
	// Ref is the id of what the effect made, if it has one.
	Ref string `store:"ref,omitzero"`
	// Entry is the id of the entry of the books that the effect made, unless Ref has it.
	Entry string `store:"entry,omitzero"`
	Times `store:",inline"`
}

// Identity names the event, its customer, and its message.
type Identity struct {
	Queue       string `store:"queue,required"`
	Tenant      string `store:"tenant,required"`
	EventID     string `store:"event_id,required"`
	EventType   string `store:"event_type"`
	PayloadHash string `store:"payload_hash,required"`
	// ConflictsWith is the hash of the payload that the id was used with before.
	ConflictsWith string `store:"conflicts_with,omitzero"`
	CorrelationID string `store:"correlation_id"`
	// IdempotencyKey names what the message was made from; without one it is the event id.
	IdempotencyKey string `store:"idempotency_key"`
	OrderingKey    string `store:"ordering_key"`
	// Customer is the event's customer as contract.CustomerOf names it, for any ordering key; empty: none.
	Customer  string `store:"customer,omitzero"`
	MessageID string `store:"message_id"`
}

// Tries are the event's attempts, and the lease of the running one.
type Tries struct {
	// Attempts counts the attempts, except those that failed without the event's fault. One with a lease counts
	// from its claim, because an event may kill its worker.
	Attempts int64 `store:"attempts,required"`
	// Log has the newest of these attempts in their order, MaxLog at most.
	Log []Attempt `store:"attempts_log,omitzero"`
	// Replays is how often the event's dead letter was replayed before the record was written.
	Replays   int64  `store:"replay_count,omitzero"`
	LastError string `store:"last_error"`
	// LeaseToken names the attempt that wrote the record last, so that it recognizes its own commits.
	LeaseToken string `store:"lease_token,required"`
	// LeaseUntil is set while the record is PROCESSING; an orphan keeps it.
	LeaseUntil time.Time `store:"lease_until,omitzero,strict"`
	// Message is kept while the record is PROCESSING, so that a sweep can publish it again.
	Message *contract.Message `store:"message,omitzero"`
}

// Delay is the wait of a Failed event for its next attempt.
type Delay struct {
	NextRetryAt time.Time `store:"next_retry_at,omitzero,strict"`
	// DelayTicket is the ticket of the copy that waits for NextRetryAt outside the broker.
	DelayTicket string `store:"delay_ticket,omitzero"`
	// DelayedBeside: later messages with the same ordering key do not wait for this one.
	DelayedBeside bool `store:"delayed_beside,omitzero"`
}

// Times are the times of the message, and then the times of the record.
type Times struct {
	// ReceivedAt is when the webhook service received it; zero: it was not a webhook.
	ReceivedAt  time.Time `store:"webhook_received_at,omitzero"`
	PublishedAt time.Time `store:"published_at,omitzero"`
	CreatedAt   time.Time `store:"created_at,omitzero,strict"`
	UpdatedAt   time.Time `store:"updated_at,omitzero,strict"`
	ProcessedAt time.Time `store:"processed_at,omitzero,strict"`
	// ExpireAt is when the record no longer counts, removed or not.
	ExpireAt time.Time `store:"expire_at,omitzero,strict"`
}

// Fields returns the record as the store keeps it.
func (r Record) Fields() map[string]any {
	shard := Shard(r.Queue, r.Tenant, r.EventID)
	fields := store.Encode(&r)
	fields["idempotency_key"] = cmp.Or(r.IdempotencyKey, r.EventID)
	fields["action"], fields[fieldShard] = r.EventType, shard // the job log's word for the type
	return fields
}

// Shard returns the part of the time index that has the record of an event, from 0 to Shards-1.
func Shard(queue, tenant, eventID string) int64 {
	sum := sha256.Sum256([]byte(Key(queue, tenant, eventID).ID))
	return int64(sum[0] % Shards)
}

// Made returns the id of what the event's effect made; empty: it has none, or the event is not completed.
func (r Record) Made() string {
	if r.Status != Completed {
		return ""
	}
	return cmp.Or(r.Ref, r.Entry)
}

// FromDocument reads a record. It fails if a decisive field is missing or invalid.
func FromDocument(doc store.Document) (r Record, err error) {
	known := []Status{Processing, Completed, Failed, DeadLettered}
	if err = store.Decode(doc.Fields, &r); err == nil && r.Attempts >= 0 && slices.Contains(known, r.Status) {
		return r, nil
	}
	return Record{}, fmt.Errorf("dedupe: record %s is not readable", doc.Key)
}

// Key returns the key of a record: by queue, tenant and event id, and also by the payload's hash if the id
// was used with another payload before. It begins with a hash, because rising ids would make a hot range.
func Key(names ...string) store.Key {
	return store.Key{Collection: Collection, ID: store.ID(names...)}
}

// MessageKey returns the key of a message without a valid event id. It includes the data, because emulators
// repeat ids.
func MessageKey(queue, messageID string, data []byte) store.Key {
	sum := sha256.Sum256(data)
	return Key(queue, "", "message", messageID, hex.EncodeToString(sum[:8]))
}

// MaxLog is how many attempts the log of a record has at most: the newest.
const MaxLog = 20

// Attempt is a counted attempt in the log of a record.
type Attempt struct {
	// Number counts the event's attempts from 1, and anew after a replay or a correction.
	Number int64 `json:"number" store:"number"`
	// Delivery is the broker's number of the delivery; 0: it sent none.
	Delivery  int64     `json:"delivery,omitzero" store:"delivery,omitzero"`
	MessageID string    `json:"message_id,omitempty" store:"message_id,omitzero"`
	Instance  string    `json:"instance,omitempty" store:"instance,omitzero"`
	Begun     time.Time `json:"begun_at,omitzero" store:"begun_at,omitzero"`
	// Ended is zero while the attempt runs, or if its end is unknown.
	Ended time.Time `json:"ended_at,omitzero" store:"ended_at,omitzero"`
	// Outcome is processed, superseded, retry, dead_lettered or dropped; empty until the end.
	Outcome retry.Outcome `json:"outcome,omitempty" store:"outcome,omitzero"`
	Reason  string        `json:"reason,omitempty" store:"reason,omitzero"`
	Next    time.Time     `json:"next_at,omitzero" store:"next_at,omitzero"`
	// Trace is the id of the delivery's trace; empty: none.
	Trace string `json:"trace,omitempty" store:"trace,omitzero"`
}
