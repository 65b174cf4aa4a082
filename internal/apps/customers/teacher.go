package customers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"billhook/internal/platform/store"
)

const (
	// knownFor is how long a mapping is believed. What a person changes through another
	// instance is noticed that late; nothing is credited by it.
	knownFor = time.Hour
	// maxKnown bounds how many are remembered: some 150 bytes each.
	maxKnown = 50_000
)

// Teacher learns mappings from orders that name a customer and a uid, and remembers known ones. It
// is safe for concurrent use.
type Teacher struct {
	from store.Getter
	log  *slog.Logger
	now  func() time.Time

	mu sync.Mutex
	// recent and before are two generations, by the ids of documents: a mapping that is used moves to the newer one, and
	// when that is full the older one is forgotten.
	recent, before map[string]known
}

type known struct {
	uid   string
	until time.Time
}

// NewTeacher returns a teacher that reads mappings from a store.
func NewTeacher(from store.Getter, log *slog.Logger, now func() time.Time) *Teacher {
	return &Teacher{from: from, log: log, now: now, recent: map[string]known{}}
}

// Order is an order that names a customer and a uid.
type Order struct{ Tenant, CustomerID, UID, EventID string }

func (o Order) key() store.Key { return Key(o.Tenant, o.CustomerID) }

// Lesson is what an order teaches.
type Lesson struct {
	// Writes belong into the commit of the order's credit: none, or the mapping, which
	// must not exist.
	Writes []store.Write
	// Differs: the customer is mapped to another uid. That stays, and is logged.
	Differs bool
	// Looked: the mapping was there and not remembered, which may have refused the commit of an
	// earlier try.
	Looked bool
}

// Learn returns the lesson of an order. The first try for an unknown customer reads nothing and
// creates the mapping; where that was refused, a further try reads it. The error is the store's.
func (t *Teacher) Learn(ctx context.Context, order Order, try int) (Lesson, error) {
	id := order.key().ID
	uid, found := t.known(id)
	switch {
	case found && uid == order.UID:
		return Lesson{}, nil
	case !found && try == 0:
		return t.create(order), nil
	}
	// What differs from what is known may have been changed since.
	mapping, err := lookup(ctx, t.from, order.Tenant, order.CustomerID)
	switch {
	case err != nil:
		return Lesson{}, err
	case mapping.version == 0:
		t.forget(id)
		return t.create(order), nil
	}
	t.remember(id, mapping.UID)
	if mapping.UID == order.UID {
		return Lesson{Looked: true}, nil
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "customer is mapped to another uid", slog.String("event_id", order.EventID),
		slog.String("tenant", order.Tenant), slog.String("customer_id", order.CustomerID), slog.String("uid", order.UID), slog.String("mapped_uid", mapping.UID))
	return Lesson{Differs: true, Looked: true}, nil
}

func (t *Teacher) create(order Order) Lesson {
	m := Mapping{Tenant: order.Tenant, CustomerID: order.CustomerID, UID: order.UID, Since: t.now(), TaughtBy: order.EventID}
	return Lesson{Writes: []store.Write{store.Create(order.key(), store.Encode(&m))}}
}

// Watch returns the store; the teacher remembers the mappings that are committed through it.
func (t *Teacher) Watch(s store.Store) store.Store { return watched{Store: s, teacher: t} }

type watched struct {
	store.Store
	teacher *Teacher
}

func (w watched) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	versions, err := w.Store.Commit(ctx, writes)
	for _, write := range writes {
		if write.Key.Collection != Collection {
			continue
		}
		if uid, ok := write.Fields["uid"].(string); ok && err == nil {
			w.teacher.remember(write.Key.ID, uid)
		} else {
			w.teacher.forget(write.Key.ID) // it is gone, or unknown
		}
	}
	return versions, err
}

func (t *Teacher) known(id string) (uid string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, found := t.recent[id]
	if !found {
		if k, found = t.before[id]; found {
			t.keep(id, k)
		}
	}
	return k.uid, found && t.now().Before(k.until)
}

func (t *Teacher) remember(id, uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(id, known{uid: uid, until: t.now().Add(knownFor)})
}

func (t *Teacher) keep(id string, k known) {
	if len(t.recent) >= maxKnown/2 {
		t.before, t.recent = t.recent, map[string]known{}
	}
	t.recent[id] = k
}

func (t *Teacher) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.recent, id)
	delete(t.before, id)
}
