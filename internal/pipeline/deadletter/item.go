package deadletter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// State is the state of an item.
type State string

// The states of an item.
const (
	Open      State = "open"      // it waits for a person
	Replayed  State = "replayed"  // its replay has not ended yet
	Processed State = "processed" // its replay has ended, as its outcome says, and not in another death
	Corrected State = "corrected" // a message with another payload replaces it for good
	Discarded State = "discarded" // a person has decided that it is not needed
	Completed State = "completed" // a person has done by hand what the message was for
)

// Alerts reports whether the item needs a person.
func (s State) Alerts() bool { return s == Open }

// Item is one dead letter as it is kept. Lists, JSON and the codec take the members in this order.
type Item struct {
	ID         string `json:"id" show:"ID,id" link:"dead-letters"`
	State      State  `json:"state" store:"state,required" show:"State,less"`
	Queue      string `json:"queue" store:"queue,required" show:"Queue,less" link:"queues"`
	Death      `store:",inline"`
	Source     `store:",inline"`
	Times      `store:",inline"`
	Detail     string    `json:"detail" store:"detail" show:"Detail,less"`
	Expires    time.Time `json:"expire_at" store:"expire_at,required" show:"Kept until,detail"`
	Resolution `store:",inline"`
	Original   `store:",inline"`

	version store.Version
}

// Death says why the message was dead-lettered, and after how many attempts and replays.
type Death struct {
	Reason      string `json:"reason" store:"reason" show:"Reason"`
	Status      int64  `json:"status" store:"status" show:"Status,detail"`
	Attempts    int64  `json:"attempts" store:"attempts" show:"Attempts,detail"`
	ReplayCount int64  `json:"replay_count" store:"replay_count" show:"Replays,detail"`
}

// Source says which message was dead-lettered, and which event it belongs to.
type Source struct {
	EventID         string `json:"event_id" store:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	EventType       string `json:"event_type" store:"event_type" show:"Type,less"`
	OrderingKey     string `json:"ordering_key" store:"ordering_key" show:"Key,detail"`
	SourceMessageID string `json:"source_message_id" store:"source_message_id"`
}

// Times are when the message was published, when it was dead-lettered, and when its item was stored.
type Times struct {
	FirstPublished time.Time `json:"first_published_at,omitzero" store:"first_published_at,omitzero" show:"First published,detail"`
	DeadLettered   time.Time `json:"dead_lettered_at,omitzero" store:"dead_lettered_at,omitzero" show:"Given up,detail"`
	Kept           time.Time `json:"kept_at" store:"kept_at" show:"Kept,less"`
}

// Resolution is what became of the message and of its item.
type Resolution struct {
	// Outcome is how the replay of a Processed item ended.
	Outcome retry.Outcome `json:"outcome,omitempty" store:"outcome,omitzero" show:"Outcome,detail"`
	// History is what people did with the item, the newest first, at most MaxHistory.
	History []Act `json:"history,omitempty" store:"history,omitzero" show:"What people did with it"`
	// Closed is when the item last left the state Open.
	Closed time.Time `json:"closed_at,omitzero" store:"closed_at,omitzero" show:"Closed,detail"`
	// CorrectedBy is the id of the message that replaces it; Corrections counts such messages.
	CorrectedBy string `json:"corrected_by,omitempty" store:"corrected_by,omitzero" show:"Corrected by message,detail"`
	Corrections int64  `json:"-" store:"corrections,omitzero"`
	// Omitted is the size of a payload that was too large to keep; 0: it is here.
	Omitted int64 `json:"data_omitted,omitempty" store:"data_omitted,omitzero"`
	// Operation is the id of the last operation on it.
	Operation string `json:"operation,omitempty" store:"operation,omitzero" show:"Last operation,detail" link:"operations"`
}

// Original is the message with the attributes that dead-lettering added, its tenant and its customer.
type Original struct {
	Tenant string `json:"-" store:"tenant"`
	// as contract.CustomerOf names it; empty: none
	Customer   string            `json:"-" store:"customer,omitzero"`
	Data       []byte            `json:"-" store:"data,omitzero,strict"`
	Attributes map[string]string `json:"-" store:"attributes"`
}

// MaxHistory bounds an item's history.
const MaxHistory = 10

// Kind is what a person does with an item.
type Kind string

// The kinds.
const (
	Replay   Kind = "replay"   // the message is published again
	Discard  Kind = "discard"  // the message is not needed
	Complete Kind = "complete" // what the message was for is done by hand
)

var stateAfter = map[Kind]State{Replay: Replayed, Discard: Discarded, Complete: Completed}

// Act is what a person has done with an item.
type Act struct {
	Kind      Kind      `json:"kind" store:"kind" show:"What"`
	Operation string    `json:"operation" store:"operation" show:"Operation" link:"operations"`
	Who       string    `json:"who" store:"who" show:"Who"`
	Why       string    `json:"why" store:"why" show:"Why"`
	At        time.Time `json:"at" store:"at" show:"At"`
}

// Died is when the message was dead-lettered, or else when it was kept.
func (i Item) Died() time.Time { return cmp.Or(i.DeadLettered, i.Kept) }

// TenantID is the event's tenant, or else the default one.
func (i Item) TenantID() string { return cmp.Or(i.Tenant, contract.DefaultTenant) }

// Became says what has become of the item since an operation on it began.
func (i Item) Became() string {
	switch {
	case i.State == Open && i.ReplayCount > 0:
		return "dead again"
	case i.State == Open:
		return "still open"
	case i.State == Replayed:
		return "still waiting"
	case i.State == Completed:
		return "completed by hand"
	default:
		return string(cmp.Or(i.Outcome, retry.Outcome(i.State)))
	}
}

// Key is the item's key.
func (i Item) Key() store.Key { return keyOf(i.ID) }

func keyOf(id string) store.Key { return store.Key{Collection: Collection, ID: id} }

// replace writes the item on the condition that it is unchanged since it was read.
func (i Item) replace() store.Write { return store.Replace(i.Key(), i.version, store.Encode(&i)) }

// Published is when the message was first published, or else when it was kept.
func (i Item) Published() time.Time { return cmp.Or(i.FirstPublished, i.Kept) }

// Dealt returns the write that records a person's act, on the condition that the item is unchanged.
func (i Item) Dealt(act Act) store.Write {
	i.State, i.Operation, i.Closed, i.Outcome = stateAfter[act.Kind], act.Operation, act.At, ""
	if act.Kind == Replay {
		i.ReplayCount++
	}
	i.History = append([]Act{act}, i.History...)
	i.History = i.History[:min(len(i.History), MaxHistory)]
	return i.replace()
}

// Message is the message with the attributes that dead-lettering added.
func (i Item) Message() contract.Message {
	return contract.Message{Data: i.Data, Attributes: i.Attributes, OrderingKey: i.OrderingKey}
}

// ItemOf reads an item.
func ItemOf(doc store.Document) (Item, error) {
	item := Item{ID: doc.Key.ID, version: doc.Version}
	err := store.Decode(doc.Fields, &item)
	if item.Kept.IsZero() && item.State == Corrected {
		item.Kept = item.Closed // its message has not arrived yet
	}
	if err != nil || item.Queue == "" || item.State == "" || item.Kept.IsZero() {
		return Item{}, fmt.Errorf("%w: dead letter %s", store.ErrUnreadable, doc.Key.ID)
	}
	return item, nil
}

// notReplayed has the attributes of a death and of a finished wait.
var notReplayed = []string{
	AttrReason, AttrStatus, AttrDetail, AttrSourceQueue, AttrSourceSubscription, AttrSourceMessageID,
	AttrAttempts, AttrDeadLetteredAt, contract.AttrDelayTicket, contract.AttrDeliverAt,
}

// Replay returns the message that a replay of the item publishes on its queue.
func (i Item) Replay(q catalog.Queue) contract.Message {
	attributes := maps.Clone(i.Attributes)
	maps.DeleteFunc(attributes, func(name, _ string) bool {
		return slices.Contains(notReplayed, name) || strings.HasPrefix(name, brokerPrefix)
	})
	attributes[AttrReplayCount], attributes[AttrReplayOf] = strconv.FormatInt(i.ReplayCount+1, 10), i.ID
	m := contract.Message{Data: i.Data, Attributes: q.Addressed(attributes)}
	if key := attributes[contract.AttrOrderingKey]; q.Ordered() && key != contract.UnknownOrderingKey {
		m.OrderingKey = key
	}
	return m
}
