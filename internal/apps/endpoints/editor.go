package endpoints

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"billhook/internal/contract/routing"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const (
	maxEvents   = 50   // patterns of an endpoint
	maxURL      = 2048 // bytes
	secretBytes = 32   // before base64
)

// Editor reads and changes endpoints for people. Every field but Off is required.
type Editor struct {
	Store            store.Store
	Poster           Poster
	OldSecretFor     time.Duration // how long the previous secret signs too after a rotation
	Now              func() time.Time
	NewID, NewSecret func() string
	// Off: no queue delivers to endpoints here, so the database has no index of their tenants and states.
	Off bool
}

// NewSecret returns a new secret of Standard Webhooks: whsec_ and 32 random bytes in base64.
func NewSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // it never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// Secret is an endpoint with its new secret, which is shown once.
type Secret struct {
	Endpoint
	Secret string `json:"secret" show:"Secret shown this once"`
}

// Get returns an endpoint.
func (ed *Editor) Get(ctx context.Context, id string) (Endpoint, error) {
	e, err := read(ctx, ed.Store, id)
	return e.Endpoint, err
}

// Add registers an endpoint and returns its secret. The error wraps audit.ErrInvalid or is ErrExists; after
// any other, another Add with the same id shows the outcome.
func (ed *Editor) Add(ctx context.Context, by audit.Author, in AddEndpoint) (Secret, error) {
	if in.ID == "" {
		in.ID = "ep_" + ed.NewID()
	}
	in.Tenant = cmp.Or(in.Tenant, dedupe.DefaultTenant)
	if len(in.Events) == 0 {
		in.Events = []string{"#"}
	}
	noPattern := func(text string) bool { _, err := routing.Parse(text); return err != nil }
	switch {
	case !pii.ID.Valid(in.ID), !pii.ID.Valid(in.Tenant):
		return Secret{}, audit.ErrID
	case len(in.Events) > maxEvents, slices.ContainsFunc(in.Events, noPattern):
		return Secret{}, fmt.Errorf("%w: events are at most %d patterns of words, * and # joined by dots",
			audit.ErrInvalid, maxEvents)
	case len(in.URL) > maxURL:
		return Secret{}, fmt.Errorf("%w: the URL has more than %d bytes", audit.ErrInvalid, maxURL)
	}
	if err := ed.Poster.Check(ctx, in.URL); err != nil {
		return Secret{}, err
	}
	now := ed.now()
	e := stored{Secret: ed.NewSecret(), Endpoint: Endpoint{
		ID: in.ID, Tenant: in.Tenant, URL: in.URL, Events: in.Events, State: Enabled,
		CreatedAt: now, ChangedAt: now,
	}}
	decide := func(doc store.Document) (audit.Made, error) {
		if doc.Version != 0 {
			return audit.Made{}, ErrExists
		}
		writes := []store.Write{e.write()}
		return audit.Made{Action: "add", After: e.side(), Writes: writes, Version: &e.Version}, nil
	}
	_, err := in.By(by).Update(ctx, ed.Store, Key(e.ID), subjectOf(e.ID), now, ed.NewID(), decide)
	return Secret{e.Endpoint, e.Secret}, err
}

// Rotate gives an endpoint a new secret, and returns it. The previous secret signs too for OldSecretFor; an
// older one ends. The error is ErrUnknown or as in audit.Change.Update.
func (ed *Editor) Rotate(ctx context.Context, by audit.Author, in ChangeEndpoint) (Secret, error) {
	e, err := ed.change(ctx, in, "rotate", by, func(e stored) (stored, bool) {
		e.OldSecret, e.Secret = e.Secret, ed.NewSecret()
		e.OldSecretUntil = ed.now().Add(ed.OldSecretFor)
		return e, true
	})
	return Secret{e.Endpoint, e.Secret}, err
}

// Enable resumes the deliveries to an endpoint, and clears its failure. The error is as in Rotate.
func (ed *Editor) Enable(ctx context.Context, by audit.Author, in ChangeEndpoint) (Endpoint, error) {
	e, err := ed.change(ctx, in, "enable", by, func(e stored) (stored, bool) {
		changed := e.State != Enabled || !e.FailingSince.IsZero()
		e = e.healthy()
		e.State, e.Reason = Enabled, ""
		return e, changed
	})
	return e.Endpoint, err
}

// Disable stops the deliveries to an endpoint. The error is as in Rotate.
func (ed *Editor) Disable(ctx context.Context, by audit.Author, in ChangeEndpoint) (Endpoint, error) {
	e, err := ed.change(ctx, in, "disable", by, func(e stored) (stored, bool) {
		return e.disabled(ByHand, ed.now()), e.State != Disabled
	})
	return e.Endpoint, err
}

const remove = "remove"

// Remove deletes an endpoint and its secrets, and returns it as it was. The error is as in Rotate.
func (ed *Editor) Remove(ctx context.Context, by audit.Author, in ChangeEndpoint) (Endpoint, error) {
	e, err := ed.change(ctx, in, remove, by, func(e stored) (stored, bool) { return e, true })
	return e.Endpoint, err
}

func (ed *Editor) change(
	ctx context.Context, in ChangeEndpoint, action string, by audit.Author, alter func(stored) (stored, bool),
) (after stored, err error) {
	now := ed.now()
	decide := func(doc store.Document) (audit.Made, error) {
		before, err := decode(doc)
		if err != nil {
			return audit.Made{}, err
		}
		made, changed := audit.Made{Action: action, Before: before.side()}, false
		switch after, changed = alter(before); {
		case !changed:
			after = before
		case action == remove:
			made.Writes = []store.Write{store.Delete(doc.Key, doc.Version)}
		default:
			after.ChangedAt = now
			made.After, made.Writes, made.Version = after.side(), []store.Write{after.write()}, &after.Version
		}
		return made, nil
	}
	_, err = in.By(by).Update(ctx, ed.Store, Key(in.ID), subjectOf(in.ID), now, ed.NewID(), decide)
	return after, err
}

func subjectOf(id string) audit.Subject { return audit.Subject{Kind: Kind, ID: id} }

func (ed *Editor) now() time.Time { return ed.Now().UTC().Truncate(time.Microsecond) }

// Tested is the outcome of a test.
type Tested struct {
	ID        string `json:"id" show:"Endpoint"`
	WebhookID string `json:"webhook_id" show:"Request's webhook-id"`
	Delivered bool   `json:"delivered" show:"Delivered"`
	// Status is the answer's; 0: there was none. Reason is the code of a failure.
	Status       int    `json:"status" show:"Status"`
	Reason       string `json:"reason,omitempty" show:"Reason"`
	Milliseconds int64  `json:"milliseconds" show:"Milliseconds"`
}

// Test sends an event of the type endpoint.test to an endpoint, even a disabled one, and changes nothing. A
// failure of the endpoint is no error. The error is ErrUnknown or the store's.
func (ed *Editor) Test(ctx context.Context, id string) (Tested, error) {
	e, err := read(ctx, ed.Store, id)
	if err != nil {
		return Tested{}, err
	}
	began := ed.Now()
	body, err := json.Marshal(notice{"endpoint.test", began.UTC().Format(time.RFC3339), subject{e.ID}})
	if err != nil {
		return Tested{}, fmt.Errorf("endpoints: test: %w", err)
	}
	t := Tested{ID: e.ID, WebhookID: "test_" + ed.NewID()}
	t.Status, err = ed.Poster.Post(ctx, e.address(began), t.WebhookID, body)
	t.Delivered, t.Milliseconds = err == nil, ed.Now().Sub(began).Milliseconds()
	if err != nil {
		if ended := context.Cause(ctx); ended != nil { // the caller did not wait for the answer
			return Tested{}, fmt.Errorf("endpoints: test: %w", ended)
		}
		t.Reason = retry.Decide(err).Reason
	}
	return t, nil
}
