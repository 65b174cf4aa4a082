// Package dedupe owns the idempotency record of an event, which is also its line
// in the job log, and the state machine that makes an effect happen once. It
// refuses to know what an effect is, how an event arrived, and how it is answered.
package dedupe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/store"
)

// Collection holds the records.
const Collection = "webhookEvents"

// DefaultTenant is the tenant of an event that names none.
const DefaultTenant = "default"

// Status is where an event stands.
type Status string

// The statuses of a record.
const (
	Processing   Status = "PROCESSING"
	Completed    Status = "COMPLETED"
	Failed       Status = "FAILED"
	DeadLettered Status = "DEAD_LETTERED"
)

// Record is what is remembered of one event of one queue and tenant.
type Record struct {
	Queue       string
	Tenant      string
	EventID     string
	EventType   string
	Status      Status
	PayloadHash string
	// ConflictsWith is, of a payload that came under an id used before with another one,
	// the hash of that other.
	ConflictsWith string
	// Attempts counts the attempts that were the event's own. One under a lease counts
	// from its claim, so that an event that kills its worker uses its attempts up too.
	Attempts int64
	// Replays is how often the event's dead letter had been replayed when the record was
	// written: a replay reopens what was dead-lettered before it.
	Replays int64
	// Corrected are the hashes of the payloads that were dead-lettered under the id before
	// this one took their place, oldest first; empty, that of a message that broke the contract.
	Corrected []string
	// DeadLetters are the dead letters under the id that are open as far as the record
	// knows, until something is applied.
	DeadLetters []string
	// LeaseToken names the attempt that wrote the record last, so that an attempt
	// whose answer was lost recognizes its own work.
	LeaseToken string
	// LeaseUntil is there while the record is PROCESSING, and then alone: what is due
	// by it is what nobody has finished.
	LeaseUntil time.Time
	// Message is kept while the record is PROCESSING, where a sweep may publish it again.
	Message *contract.Message
	// Emitted are the event ids of the messages that the effect emitted.
	Emitted []string
	// Result is the handler's code for what it did.
	Result string
	// LastError is the reason code of the last failure.
	LastError     string
	CorrelationID string
	// IdempotencyKey names what the message was made from, where it says so; the event id
	// stands in for it.
	IdempotencyKey string
	OrderingKey    string
	MessageID      string
	NextRetryAt    time.Time
	// DelayTicket is there while the message waits for NextRetryAt elsewhere than with
	// the broker: that of the copy that will come back.
	DelayTicket string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ProcessedAt time.Time
	// ExpireAt is when the record no longer counts, removed or not.
	ExpireAt time.Time
}

// Key is the record's key. The hash goes first: PayNow's ids rise, and documents
// of rising ids make one hot range.
func Key(queue, tenant, eventID string) store.Key {
	return key(queue, tenant, eventID)
}

// ConflictKey is the key under which a payload is remembered that came under an id
// already used with another payload.
func ConflictKey(queue, tenant, eventID, payloadHash string) store.Key {
	return key(queue, tenant, eventID, payloadHash)
}

// MessageKey is the key of a message that has no valid event id to go by. The hash
// of its data is part of it, since an emulator numbers its messages anew at every start.
func MessageKey(queue, messageID string, data []byte) store.Key {
	sum := sha256.Sum256(data)
	return key(queue, "", "message", messageID, hex.EncodeToString(sum[:8]))
}

func key(parts ...string) store.Key {
	var id strings.Builder
	for i, part := range parts {
		if i > 0 {
			id.WriteByte('~')
		}
		// PathEscape leaves the tilde, which separates the parts here.
		id.WriteString(strings.ReplaceAll(url.PathEscape(part), "~", "%7E"))
	}
	sum := sha256.Sum256([]byte(id.String()))
	return store.Key{Collection: Collection, ID: hex.EncodeToString(sum[:4]) + "-" + id.String()}
}

// Hour names the hour, in UTC, that a moment is in, such as 2026-11-21T09. A record has
// that of its creation, so that those of a span of time are found hour by hour, by
// equality: a range over a field that rises would need an index with one hot end.
func Hour(at time.Time) string { return at.UTC().Format("2006-01-02T15") }

// Fields returns the record as the store keeps it. Zero times are left out.
func (r Record) Fields() map[string]any {
	fields := map[string]any{
		"queue": r.Queue, "tenant": r.Tenant, "event_id": r.EventID, "event_type": r.EventType,
		// The job log's word for it.
		"action": r.EventType,
		"status": string(r.Status), "payload_hash": r.PayloadHash, "attempts": r.Attempts,
		"lease_token": r.LeaseToken, "result": r.Result, "last_error": r.LastError,
		"correlation_id": r.CorrelationID, "idempotency_key": cmp.Or(r.IdempotencyKey, r.EventID),
		"ordering_key": r.OrderingKey, "message_id": r.MessageID,
	}
	for name, at := range map[string]time.Time{
		"lease_until": r.LeaseUntil, "next_retry_at": r.NextRetryAt, "created_at": r.CreatedAt,
		"updated_at": r.UpdatedAt, "processed_at": r.ProcessedAt, "expire_at": r.ExpireAt,
	} {
		if !at.IsZero() {
			fields[name] = at.UTC().Truncate(time.Microsecond)
		}
	}
	if r.Replays > 0 {
		fields["replay_count"] = r.Replays
	}
	if !r.CreatedAt.IsZero() {
		fields["hour"] = Hour(r.CreatedAt)
	}
	if r.DelayTicket != "" {
		fields["delay_ticket"] = r.DelayTicket
	}
	if r.ConflictsWith != "" {
		fields["conflicts_with"] = r.ConflictsWith
	}
	if r.Message != nil {
		fields["message"] = r.Message.Fields()
	}
	for name, texts := range map[string][]string{"emitted": r.Emitted, "corrected": r.Corrected, "dead_letters": r.DeadLetters} {
		if len(texts) == 0 {
			continue
		}
		list := make([]any, len(texts))
		for i, text := range texts {
			list[i] = text
		}
		fields[name] = list
	}
	return fields
}

// FromDocument reads a record. It fails where a field that decides is missing or of
// another type: a record we cannot read must not pass for absent, nor for another's.
func FromDocument(doc store.Document) (Record, error) {
	readable := true
	text := func(name string) string { value, _ := doc.Fields[name].(string); return value }
	must := func(name string) string {
		value, ok := doc.Fields[name].(string)
		readable = readable && ok
		return value
	}
	at := func(name string) time.Time {
		value, ok := doc.Fields[name].(time.Time)
		if _, there := doc.Fields[name]; there && !ok {
			readable = false
		}
		return value
	}
	attempts, ok := doc.Fields["attempts"].(int64)
	replays, _ := doc.Fields["replay_count"].(int64)
	record := Record{
		Queue: must("queue"), Tenant: must("tenant"), EventID: must("event_id"), EventType: text("event_type"),
		Status: Status(must("status")), PayloadHash: must("payload_hash"), ConflictsWith: text("conflicts_with"), Attempts: attempts,
		Replays: replays, LeaseToken: must("lease_token"), LeaseUntil: at("lease_until"), Result: text("result"),
		LastError: text("last_error"), CorrelationID: text("correlation_id"), IdempotencyKey: text("idempotency_key"),
		OrderingKey: text("ordering_key"), MessageID: text("message_id"), NextRetryAt: at("next_retry_at"),
		CreatedAt: at("created_at"), UpdatedAt: at("updated_at"), ProcessedAt: at("processed_at"),
		ExpireAt: at("expire_at"), DelayTicket: text("delay_ticket"),
	}
	if fields, ok := doc.Fields["message"].(map[string]any); ok {
		if m, ok := contract.MessageOf(fields); ok {
			record.Message = &m
		}
	}
	for name, texts := range map[string]*[]string{"emitted": &record.Emitted, "corrected": &record.Corrected, "dead_letters": &record.DeadLetters} {
		list, _ := doc.Fields[name].([]any)
		for _, element := range list {
			if text, ok := element.(string); ok {
				*texts = append(*texts, text)
			}
		}
	}
	switch record.Status {
	case Processing, Completed, Failed, DeadLettered:
	default:
		readable = false
	}
	if !ok || attempts < 0 || !readable {
		return Record{}, fmt.Errorf("dedupe: record %s is not readable", doc.Key)
	}
	return record, nil
}
