// Package endpoints owns the addresses that third parties have registered to be told of events: their secrets
// and filters, whether they are told, and since when they fail. It refuses to know how a request is made, and
// to show a secret a second time.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

// Collection has a document for each endpoint, under its id. Lists has, without secrets, one for
// each list that an endpoint is on: see listed.
const (
	Collection = "endpoints"
	Lists      = "endpointLists"
)

// Kind is what the audit calls the subject of a change.
const Kind = "endpoint"

// State is whether an endpoint is told of events.
type State string

// The states.
const (
	Enabled  State = "enabled"
	Disabled State = "disabled"
)

// Why an endpoint is disabled.
const (
	// ByHand: a person has disabled it.
	ByHand = "by_hand"
	// Gone: it has answered 410.
	Gone = "gone"
	// Failing: it has failed for too long.
	Failing = "failing"
)

// Endpoint is an endpoint as people see it. All of its secrets are left out.
type Endpoint struct {
	ID     string `json:"id" store:"endpoint_id,required" show:"Endpoint" link:"endpoints"`
	Tenant string `json:"tenant" store:"tenant,required" show:"Tenant,less"`
	// URL is called as it stands.
	URL string `json:"url" store:"url,required" show:"Address"`
	// Events are patterns of event types, as bindings are; one that matches is enough.
	Events []string `json:"events" store:"events,required" show:"Events,less"`
	State  State    `json:"state" store:"state,required" show:"State"`
	// Reason is why it is disabled: by_hand, gone or failing.
	Reason string `json:"reason,omitempty" store:"reason,omitzero" show:"Reason"`
	// FailingSince is the time of the first failure since the last success, and Failure its code.
	FailingSince time.Time `json:"failing_since,omitzero" store:"failing_since,omitzero" show:"Failing since"`
	Failure      string    `json:"failure,omitempty" store:"failure,omitzero" show:"Failure,detail"`
	// OldSecretUntil is the time until which the secret before the last rotation signs too.
	OldSecretUntil time.Time `json:"old_secret_until,omitzero" store:"old_secret_until,omitzero" show:"Old secret signs until,detail"`
	CreatedAt      time.Time `json:"created_at" store:"created_at,required" show:"Registered,detail"`
	ChangedAt      time.Time `json:"changed_at" store:"changed_at,required" show:"Changed,detail"`
	// Version is that of the record, which a change may expect; a list does not know it.
	Version store.Version `json:"version,omitzero"`
}

// Allows reports whether it can be enabled or disabled.
func (e Endpoint) Allows(verb string) bool {
	return verb != "disable" && verb != "enable" || verb == "disable" == (e.State == Enabled) || verb == "enable" && !e.FailingSince.IsZero()
}

// side is what the audit says of it. An address may name a customer, and stays out.
func (e Endpoint) side() map[string]any {
	side := map[string]any{"state": string(e.State), "tenant": e.Tenant}
	if e.Reason != "" {
		side["reason"] = e.Reason
	}
	if !e.OldSecretUntil.IsZero() {
		side["old_secret_until"] = e.OldSecretUntil
	}
	return side
}

// Address is where an endpoint is, and what signs the requests to it.
type Address struct {
	ID, URL string
	// Secrets all sign; the newest is the first.
	Secrets []string
}

// Poster makes the requests.
type Poster interface {
	// Post makes one signed request; status is that of the answer, or 0. The error is marked, as by
	// retry.HTTPStatus, and does not count where nothing was sent.
	Post(ctx context.Context, to Address, id string, body []byte) (status int, err error)
	// Check reports whether requests may go to an address. The error wraps audit.ErrInvalid.
	Check(ctx context.Context, address string) error
}

// The errors. Any other means that nothing is known, and nothing certain of a change.
var (
	// ErrUnknown: there is no such endpoint.
	ErrUnknown = errors.New("endpoints: no such endpoint")
	// ErrExists: there is one of that id.
	ErrExists = errors.New("endpoints: there is an endpoint of that id")
	// ErrBroken: what is stored is no endpoint.
	ErrBroken = errors.New("endpoints: stored endpoint is not readable")
)

type stored struct {
	Endpoint  `store:",inline"`
	Secret    string `store:"secret,required"`
	OldSecret string `store:"old_secret,omitzero"`
}

// Key is the key of an endpoint's document.
func Key(id string) store.Key { return store.Key{Collection: Collection, ID: id} }

// read returns an endpoint. The error wraps ErrUnknown or ErrBroken, or says that nothing is known.
func read(ctx context.Context, from store.Getter, id string) (stored, error) {
	if !pii.ID.Valid(id) {
		return stored{}, ErrUnknown
	}
	doc, err := store.Find(ctx, from, Key(id))
	if err != nil {
		return stored{}, fmt.Errorf("endpoints: %w", err)
	}
	return stand(doc)
}

func stand(doc store.Document) (stored, error) {
	if doc.Version == 0 {
		return stored{}, ErrUnknown
	}
	e := stored{Endpoint: Endpoint{Version: doc.Version}}
	if err := store.Decode(doc.Fields, &e); err != nil || (e.State != Enabled && e.State != Disabled) {
		return stored{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return e, nil
}

func (e stored) address(now time.Time) Address {
	to := Address{ID: e.ID, URL: e.URL, Secrets: []string{e.Secret}}
	if e.OldSecret != "" && now.Before(e.OldSecretUntil) {
		to.Secrets = append(to.Secrets, e.OldSecret)
	}
	return to
}

// The lists of endpoints, each the newest first.
const (
	all      = "all"
	disabled = "disabled"
	failing  = "failing"
	ofTenant = "tenant:"
)

// listed is the key of an endpoint's document on a list, the newest first.
func (e Endpoint) listed(list string) store.Key {
	return store.Key{Collection: Lists, ID: fmt.Sprintf("%s~%019d-%s", list, math.MaxInt64-e.CreatedAt.UnixMicro(), e.ID)}
}

// writes are those of a change, or of the removal: the endpoint at the version that was read, and the lists.
func (e stored) writes(removed bool) []store.Write {
	writes := []store.Write{store.Replace(Key(e.ID), e.Version, store.Encode(&e))}
	if removed {
		writes[0] = store.Delete(Key(e.ID), e.Version)
	}
	for list, on := range map[string]bool{
		all: true, ofTenant + e.Tenant: true, disabled: e.State == Disabled, failing: !e.FailingSince.IsZero(),
	} {
		if on && !removed {
			writes = append(writes, store.Set(e.listed(list), store.Encode(&e.Endpoint)))
		} else {
			writes = append(writes, store.Delete(e.listed(list), 0))
		}
	}
	return writes
}

func (e stored) disabled(reason string, now time.Time) stored {
	e.State, e.Reason, e.ChangedAt = Disabled, reason, now
	return e
}

func (e stored) healthy() stored {
	e.FailingSince, e.Failure = time.Time{}, ""
	return e
}
