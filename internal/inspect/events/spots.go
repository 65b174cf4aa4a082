package events

import (
	"context"
	"slices"
	"time"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/store"
)

// Where is the kind of a place that an event waits in.
type Where string

// The places. Spot.String describes each.
const (
	PlaceBroker          Where = "broker"            // the broker delivers it again
	PlaceLease           Where = "lease"             // a worker has it
	PlaceDelayed         Where = "delayed"           // it is kept until it is due
	PlaceOutbox          Where = "outbox"            // it is published within seconds
	PlaceDeadLetterTopic Where = "dead_letter_topic" // its dead letter is on its way to the store
	PlaceDeadLetter      Where = "dead_letter"       // a person deals with it
	PlaceApproval        Where = "approval"          // a second person approves what is done with it
	PlaceReplay          Where = "replay"            // its replay has not ended yet
	PlacePaused          Where = "paused"            // a person has paused its queue
)

// Spot is one place that an event waits in.
type Spot struct {
	Place Where  `json:"place" show:"Where"`
	Queue string `json:"queue,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Until is when its waiting ends by itself; zero: it does not, or that is not known.
	Since time.Time `json:"since,omitzero" show:"Since"`
	Until time.Time `json:"until,omitzero" show:"Until"`
	// OrderingKey is the key of the messages ahead of it, and Behind the next event of that key.
	OrderingKey string   `json:"ordering_key,omitempty"`
	Behind      string   `json:"behind,omitempty" show:"Next" link:"events"`
	DeadLetters []string `json:"dead_letters,omitempty" show:"Dead letters"`
	Operation   string   `json:"operation,omitempty"`
	Who         string   `json:"who,omitempty"`
	Why         string   `json:"why,omitempty"`
}

func placeOf(k lane.Kept) Where {
	if k.Outbox() {
		return PlaceOutbox
	}
	return PlaceDelayed
}

// closely bounds the approvals, messages and emissions of an event that are read one by one. ofLine is how
// many documents are read for the lane of a waiting message: the lane, its first message, and the one after
// that.
const (
	closely = 10
	ofLine  = 3
)

// shares divides the reads that are left among waiting approvals, lanes of messages, and emissions.
func (f found) shares() (approvals, lines, emissions int) {
	delayed := len(slices.DeleteFunc(slices.Clone(f.own), lane.Kept.Outbox))
	approvals = min(closely, f.left/4)
	left := f.left - approvals - 1 // the query also reads the one after them
	lines = min(closely, delayed, left/2/ofLine)
	return approvals, lines, min(closely, left-lines*ofLine)
}

func (a Reads) places(ctx context.Context, e *Event, record dedupe.Record, f found) error {
	now, delayed := a.Now(), false
	approvals, lines, _ := f.shares()
	for _, kept := range f.own {
		spot := Spot{Place: PlaceOutbox, Queue: a.Destination(kept), Topic: kept.Topic, Since: kept.CreatedAt}
		if !kept.Outbox() {
			delayed = delayed || !kept.Emitted
			spot = a.delayOf(kept)
			if lines--; lines >= 0 {
				var err error
				if spot, err = a.DelayOf(ctx, kept); err != nil {
					return err
				}
			}
		}
		e.Places = append(e.Places, spot)
	}
	add := func(place Where, until time.Time) {
		e.Places = append(e.Places, Spot{Place: place, Queue: e.Queue, Since: record.UpdatedAt, Until: until})
	}
	switch {
	case record.Status == dedupe.Processing:
		add(PlaceLease, record.LeaseUntil)
	case record.Status == dedupe.Failed && !delayed:
		add(PlaceBroker, record.NextRetryAt)
	case record.Status == dedupe.DeadLettered && len(e.DeadLetters) == 0:
		// The item is stored within seconds, and removed after its retention.
		q, ok := a.Catalog.Queue(e.Queue)
		if ok && !q.DeadLetter.Drop && now.Sub(record.UpdatedAt) < q.DeadLetter.Retention {
			add(PlaceDeadLetterTopic, time.Time{})
		}
	}
	if err := a.dead(ctx, e, record, approvals); err != nil || len(e.Places) == 0 {
		return err
	}
	doc, err := store.Find(ctx, a.Store, store.Key{Collection: pause.Collection, ID: e.Queue})
	if err != nil || doc.Version == 0 {
		return err
	}
	p, err := pause.Read(doc)
	e.Places = append(e.Places, Spot{Place: PlacePaused, Queue: p.Queue, Since: p.At, Who: p.Who, Why: p.Why})
	return err
}

// dead adds the places of the event's dead letters, and the operations on them that wait for a second person.
func (a Reads) dead(ctx context.Context, e *Event, record dedupe.Record, approvals int) (err error) {
	var asked []bulk.Operation
	isOpen := func(item deadletter.Item) bool { return item.State == deadletter.Open }
	if slices.ContainsFunc(e.DeadLetters, isOpen) {
		if asked, e.More, err = bulk.Asked(ctx, a.Store, e.Queue, approvals); err != nil {
			return err
		}
	}
	for _, deadLetter := range e.DeadLetters {
		spot := Spot{Queue: deadLetter.Queue, DeadLetters: []string{deadLetter.ID}, Since: deadLetter.Kept}
		switch {
		case deadLetter.State == deadletter.Open:
			spot.Place, spot.Until = PlaceDeadLetter, deadLetter.Expires
		case deadLetter.State == deadletter.Replayed && record.Status != dedupe.Completed:
			spot.Place, spot.Since, spot.Operation = PlaceReplay, deadLetter.Closed, deadLetter.Operation
		default:
			continue
		}
		e.Places = append(e.Places, spot)
		for _, op := range asked {
			if op.DealsWith(deadLetter) {
				e.Places = append(e.Places, Spot{
					Place: PlaceApproval, Queue: deadLetter.Queue, DeadLetters: []string{deadLetter.ID},
					Since: op.CreatedAt, Operation: op.ID, Who: op.Who, Why: op.Why,
				})
			}
		}
	}
	return nil
}

// delayOf returns the place of a kept message, without the event ahead of it.
func (a Reads) delayOf(kept lane.Kept) Spot {
	return Spot{
		Place: PlaceDelayed, Queue: a.Destination(kept), Since: kept.CreatedAt, Until: kept.DueAt,
		OrderingKey: kept.Message.OrderingKey,
	}
}

// DelayOf returns the place of a kept message: which event is ahead of it, and how long it waits.
func (a Reads) DelayOf(ctx context.Context, kept lane.Kept) (Spot, error) {
	line, first, err := lane.LineOf(ctx, a.Store, kept)
	if err != nil {
		return Spot{}, err
	}
	spot := a.delayOf(kept)
	if first.EventID != kept.EventID || first.Emits != kept.Emits {
		spot.Behind = first.EventID
	}
	if line.DueAt.After(spot.Until) {
		spot.Until = line.DueAt
	}
	return spot, nil
}

// EmissionState is the state of a message that an event has emitted.
type EmissionState string

// The states of an emission. One that is only published has no record yet.
const (
	EmissionWaiting      EmissionState = "waiting_in_outbox" // it is published within seconds
	EmissionDelayed      EmissionState = "delayed"           // it is kept until it is due
	EmissionPublished    EmissionState = "published"         // its queue has not recorded it yet
	EmissionProcessing   EmissionState = "processing"        // a worker has it
	EmissionFailed       EmissionState = "failed"            // it is tried again
	EmissionProcessed    EmissionState = "processed"         // its effect took place, or it needs none
	EmissionDeadLettered EmissionState = "dead_lettered"     // it waits for a person
)

var emissionStates = map[dedupe.Status]EmissionState{
	dedupe.Processing: EmissionProcessing, dedupe.Failed: EmissionFailed,
	dedupe.Completed: EmissionProcessed, dedupe.DeadLettered: EmissionDeadLettered,
}

// Emission is a message that the event has emitted, for a queue or a topic.
type Emission struct {
	EventID   string        `json:"event_id"`
	Tenant    string        `json:"tenant"`
	EventType string        `json:"event_type"`
	Queue     string        `json:"queue"`
	State     EmissionState `json:"state"`
	Reason    string        `json:"reason,omitempty"`
	Until     time.Time     `json:"until,omitzero"`
}

func (a Reads) emissions(ctx context.Context, e *Event, record dedupe.Record, f found) error {
	_, _, most := f.shares()
	for _, emitted := range record.Emitted[:min(len(record.Emitted), most)] {
		one := Emission{
			EventID: emitted.EventID, Tenant: e.Tenant, EventType: emitted.EventType, Queue: emitted.To,
			State: EmissionPublished,
		}
		i := slices.IndexFunc(f.waits, func(kept lane.Kept) bool { return kept.Emits == emitted.EventID })
		if i >= 0 && f.waits[i].Outbox() {
			one.State = EmissionWaiting
		} else if i >= 0 {
			one.State, one.Until = EmissionDelayed, f.waits[i].DueAt
		}
		before := len(e.Emissions)
		for _, q := range a.Catalog.Queues {
			attributes := map[string]string{"event_type": emitted.EventType}
			if q.ID == emitted.To || q.Topic() == emitted.To && q.Takes(attributes) {
				one.Queue = q.ID
				e.Emissions = append(e.Emissions, one)
			}
		}
		if len(e.Emissions) == before {
			e.Emissions = append(e.Emissions, one)
		}
	}
	e.Emissions = e.Emissions[:min(len(e.Emissions), most)]
	err := store.AtOnce(ctx, len(e.Emissions), func(ctx context.Context, i int) error {
		one := &e.Emissions[i]
		doc, err := store.Find(ctx, a.Store, dedupe.Key(one.Queue, one.Tenant, one.EventID))
		if err != nil || doc.Version == 0 {
			return err
		}
		record, err := dedupe.FromDocument(doc)
		if err == nil {
			one.State, one.Reason, one.Until = emissionStates[record.Status], record.LastError, record.NextRetryAt
		}
		return err
	})
	// An emission without a record is published, unless its waiting message was not read.
	e.Emissions = slices.DeleteFunc(e.Emissions, func(one Emission) bool {
		return f.unread && one.State == EmissionPublished
	})
	return err
}

// errNowhere is the answer for an event that the store does not know: it says where the event may be.
var errNowhere = console.Refuse(console.Absent, "event_unknown", "No worker has recorded an event of that "+
	"id, and the outbox, the delayed messages and the dead letters do not have it. It may wait in the broker "+
	"(billhook queues waiting counts what does), or be in its first attempt. Or it never passed the webhook "+
	"service, or its record has expired. What was logged of it: "+
	`gcloud logging read 'jsonPayload.event_id="<event id>"'.`)
