// Package endpoints owns the addresses that third parties have registered for events: their secrets, filters
// and state, and since when they fail. It does not know how a request is made, and shows a secret only once.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Collection has a document for each endpoint, under its id.
const Collection = "endpoints"

// Kind is the audit's kind of subject for endpoints.
const Kind = "endpoint"

// State says whether events are delivered to an endpoint.
type State string

// The states.
const (
	Enabled  State = "enabled"  // events are delivered to it
	Disabled State = "disabled" // none are, and missed ones are not sent later
)

// The reasons for which an endpoint is disabled.
const (
	ByHand  = "by_hand" // a person has disabled it
	Gone    = "gone"    // it has answered 410
	Failing = "failing" // it has failed for too long
)

// Endpoint is an endpoint as people see it, without its secrets.
type Endpoint struct {
	ID     string `json:"id" store:"endpoint_id,required" show:"Endpoint" link:"endpoints"`
	Tenant string `json:"tenant" store:"tenant,required" show:"Tenant,less"`
	URL    string `json:"url" store:"url,required" show:"Address"`
	// Events are patterns of event types; one of them must match.
	Events []string `json:"events" store:"events,required" show:"Events,less"`
	State  State    `json:"state" store:"state,required" show:"State"`
	Reason string   `json:"reason,omitempty" store:"reason,omitzero" show:"Reason"`
	// FailingSince is the time of the first failure since the last success; Failure is its code.
	FailingSince time.Time `json:"failing_since,omitzero" store:"failing_since,omitzero" show:"Failing since"`
	Failure      string    `json:"failure,omitempty" store:"failure,omitzero" show:"Failure,detail"`
	// OldSecretUntil is the time until which the previous secret also signs, after a rotation.
	OldSecretUntil time.Time     `json:"old_secret_until,omitzero" store:"old_secret_until,omitzero" show:"Old secret signs until,detail"`
	CreatedAt      time.Time     `json:"created_at" store:"created_at,required" show:"Registered,detail"`
	ChangedAt      time.Time     `json:"changed_at" store:"changed_at,required" show:"Changed,detail"`
	Version        store.Version `json:"version"`
}

// Allows reports whether the endpoint can be enabled or disabled.
func (e Endpoint) Allows(verb string) bool {
	return verb != "disable" && verb != "enable" || verb == "disable" == (e.State == Enabled) ||
		verb == "enable" && !e.FailingSince.IsZero()
}

// side returns the endpoint for an audit entry, without the address, which may name a customer.
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

// Address is the address of an endpoint, and the secrets for requests to it.
type Address struct {
	ID, URL string
	Secrets []string // the newest first; all sign
}

// Poster makes the requests.
type Poster interface {
	// Post makes one signed request; status is the answer's, or 0. The error is marked, as by retry.HTTPStatus,
	// and does not count if no request was made.
	Post(ctx context.Context, to Address, id string, body []byte) (status int, err error)
	// Check reports whether requests may go to an address. The error wraps audit.ErrInvalid.
	Check(ctx context.Context, address string) error
}

// The errors. After any other, a change may have been made.
var (
	ErrUnknown = console.Refuse(console.Absent, "endpoint_unknown", "There is no endpoint of that id.")
	ErrExists  = console.Refuse(console.Conflict, "endpoint_exists", "There is an endpoint of that id.")
	ErrBroken  = errors.New("endpoints: stored endpoint is not readable")
	errOff     = console.Refuse(console.Conflict, "endpoints_off",
		"No queue delivers to endpoints here, and so none are found by their tenant or as disabled: list all.")
)

type stored struct {
	Endpoint  `store:",inline"`
	Secret    string `store:"secret,required"`
	OldSecret string `store:"old_secret,omitzero"`
}

// Key is the key of an endpoint's document.
func Key(id string) store.Key { return store.Key{Collection: Collection, ID: id} }

// read returns an endpoint. The error wraps ErrUnknown or ErrBroken, or is the store's.
func read(ctx context.Context, from store.Getter, id string) (stored, error) {
	return store.Read(ctx, from, Key(id), ErrUnknown, decode)
}

// Read reads the document of an endpoint.
func Read(doc store.Document) (Endpoint, error) {
	e, err := decode(doc)
	return e.Endpoint, err
}

func decode(doc store.Document) (stored, error) {
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

func (e stored) write() store.Write { return store.Replace(Key(e.ID), e.Version, store.Encode(&e)) }

func (e stored) disabled(reason string, now time.Time) stored {
	e.State, e.Reason, e.ChangedAt = Disabled, reason, now
	return e
}

func (e stored) healthy() stored {
	e.FailingSince, e.Failure = time.Time{}, ""
	return e
}

// ListEndpoints requests all endpoints, those of a state, or those of a tenant.
type ListEndpoints struct {
	State  string `json:"-" query:"state" validate:"omitempty,oneof=disabled failing" help:"only endpoints in this state: disabled or failing"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"only those of this tenant"`
	console.Page
}

// EndpointOf names an endpoint.
type EndpointOf struct {
	ID string `json:"-" path:"id" validate:"required" help:"endpoint"`
}

// ChangeEndpoint is a change of one endpoint.
type ChangeEndpoint struct {
	EndpointOf
	console.Edit
}

// AddEndpoint registers an endpoint.
type AddEndpoint struct {
	ID     string   `json:"id,omitempty" help:"its id, which messages name; one is made up where it is empty"`
	Tenant string   `json:"tenant,omitempty" help:"the tenant whose events it gets; empty: events without a tenant"`
	URL    string   `json:"url" validate:"required" arg:"" help:"its address, such as https://partner.example.com/hooks"`
	Events []string `json:"events,omitempty" help:"patterns of event types, such as invoice.*,subscription.#; all where there is none"`
	console.Change
}

var errBoth = console.Refuse(console.Malformed, "parameter_invalid", "Give a state or a tenant, not both.")

// List returns a page of endpoints, newest first; of failing ones, the last failed first.
func (ed *Editor) List(ctx context.Context, _ audit.Author, q ListEndpoints) (console.List[Endpoint], error) {
	newest := &store.Newest{Field: "created_at"}
	query := store.Query{Collection: Collection, Newest: newest, After: q.After, Limit: q.Limit}
	switch {
	case q.State != "" && q.Tenant != "":
		return console.List[Endpoint]{}, errBoth
	case ed.Off && (q.State == "disabled" || q.Tenant != ""):
		return console.List[Endpoint]{}, errOff
	case q.State == "failing":
		newest.Field = "failing_since"
	case q.State != "":
		query.Equal = map[string]any{"state": q.State}
	case q.Tenant != "":
		query.Equal = map[string]any{"tenant": q.Tenant}
	}
	return console.Listed(store.List(ctx, ed.Store, query, Read))
}

// Operations are what people do with endpoints.
func (ed *Editor) Operations() []console.Operation {
	const one = "/v1/ops/endpoints/{id}"
	change := func(verb, path, summary, help string) console.Row {
		return console.Row{
			Name: "endpoints " + verb, Path: path, Summary: summary, Help: help,
			Needs: console.Reason, Before: "endpoints show", Once: verb == "rotate",
		}
	}
	return []console.Operation{
		console.New(console.Row{
			Name: "endpoints ls", Path: "GET /v1/ops/endpoints", Summary: "List endpoints, newest first",
			Empty: "No endpoint is in this list. Events go to a third party once endpoints add registers its address.",
		}, ed.List),
		console.New(console.Row{
			Name: "endpoints show", Path: "GET " + one,
			Summary: "Show an endpoint, and since when its deliveries fail",
			Beside:  []string{"endpoints deliveries", "endpoints history"},
		}, func(ctx context.Context, _ audit.Author, in EndpointOf) (Endpoint, error) {
			return ed.Get(ctx, in.ID)
		}),
		console.New(console.Row{
			Name: "endpoints deliveries", Path: "GET " + one + "/deliveries",
			Summary: "Show the newest deliveries to an endpoint: their outcome, success rate and duration",
			Empty:   "No event was to be delivered to it yet. A producer sends webhook_delivery with its id.",
		}, ed.deliveries),
		console.New(console.Row{
			Name: "endpoints add", Path: "POST /v1/ops/endpoints",
			Summary: "Register an endpoint, and show its secret once", Needs: console.Reason,
			Help: "It gets events from now on.", Created: true, Once: true,
		}, ed.Add),
		console.New(change("rotate", "POST "+one+"/rotate", "Give an endpoint a new secret, and show it once",
			"The current secret signs beside the new one for a time; an older one ends now."), ed.Rotate),
		console.New(change("enable", "POST "+one+"/enable", "Resume deliveries to an endpoint",
			"Missed events are not sent."), ed.Enable),
		console.New(change("disable", "POST "+one+"/disable", "Stop deliveries to an endpoint",
			"Events for it are done without a request, and are not sent later."), ed.Disable),
		console.New(change("rm", "DELETE "+one, "Delete an endpoint and its secrets",
			"Events that name it are done without a request."), ed.Remove),
		console.New(console.Row{
			Name: "endpoints test", Path: "POST " + one + "/test",
			Summary: "Send an endpoint a signed event of type endpoint.test",
			Help:    "It is sent even if the endpoint is disabled. Nothing else changes.", Needs: console.Act,
			Before: "endpoints show", Once: true,
		}, func(ctx context.Context, _ audit.Author, in EndpointOf) (Tested, error) { return ed.Test(ctx, in.ID) }),
		console.HistoryWithoutTenant("endpoints", Kind, ed.Store),
	}
}
