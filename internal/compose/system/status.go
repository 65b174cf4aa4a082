// Package system shows the deployment and its agreement with the catalog, the worker's catalog, and the
// changes that people have made. It changes nothing.
package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/search"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// Reads reads the state of the worker and its deployment.
type Reads struct {
	events.Reads

	Deployment *Deployment
	// Example makes a body of a format, for an event type or a pattern; nil: contracts have no example.
	Example func(format, eventType string) ([]byte, error)
}

// Self is this worker.
type Self struct {
	Build    serve.Build `json:"build" show:"*"`
	Instance string      `json:"instance" show:"Worker"`
	// Pool is the pool whose queues it serves; empty: all.
	Pool      string    `json:"pool" show:"Pool"`
	StartedAt time.Time `json:"started_at" show:"Started"`
}

// Deployment is a worker in its deployment.
type Deployment struct {
	Self     Self
	Settings []env.Setting
	// Doctor compares the live queues with the catalog; nil: they cannot be read from here.
	Doctor Doctor
}

// Doctor compares the deployment with the catalog. paused are the pauses by queue. The error names what could
// not be read, and has no payload.
type Doctor func(ctx context.Context, paused map[string]pause.Pause) (Examination, error)

// Examination is the result of a Doctor.
type Examination struct {
	Findings []finding.Finding `json:"findings" show:"Findings"`
	Unread   int               `json:"unread"`
	Catalogs map[string]string `json:"-"`
}

// Status is the state of the deployment, as this worker sees it.
type Status struct {
	Self

	// Catalog is the hash of this worker's catalog; empty: it was not read from files.
	Catalog string `json:"catalog" show:"Catalog"`
	// Deployed are the hashes of the catalogs that queues were deployed from: one if all agree, none if unknown.
	Deployed      []string        `json:"deployed" show:"Deployed"`
	Agreement     Agreement       `json:"agreement" show:"Agreement"`
	Services      []ServiceStatus `json:"services" show:"Services seen in this hour and the one before"`
	Configuration []env.Setting   `json:"configuration" show:"Settings of this worker"`
	Doctor        Diagnosis       `json:"doctor" show:"*"`
}

// Alerts reports whether what is deployed differs from the catalog.
func (s Status) Alerts() bool { return len(s.Doctor.Findings) > 0 || s.Agreement == Differs }

// Notes are the differences, and what could not be read.
func (s Status) Notes() (notes []string) {
	d := s.Doctor
	if n := len(d.Findings); n > 0 {
		notes = append(notes, fmt.Sprintf("What is deployed differs from the catalog: findings: %d.", n))
	} else if d.Problem == "" {
		notes = append(notes, "What this worker may look at is as the catalog says.")
	}
	if s.Agreement == Differs {
		notes = append(notes, "The queues were deployed from another catalog than this worker's, or from several.")
	}
	if d.Problem != "" {
		notes = append(notes, "Nothing was examined: "+strings.TrimSuffix(d.Problem, ".")+".")
	}
	if d.Unread > 0 {
		const unread = "This worker may not look at %d topics, subscriptions and grants; " +
			"billhook admin doctor looks with your credentials."
		notes = append(notes, fmt.Sprintf(unread, d.Unread))
	}
	return append(notes, "A worker without processor time between requests is not seen while it is idle; the "+
		"webhook service is seen by its messages.")
}

// Agreement says whether a catalog is the deployed one or, if that is unknown, this worker's.
type Agreement string

// The results of comparing catalogs.
const (
	Same     Agreement = "same"    // the catalog is the deployed one
	Differs  Agreement = "differs" // another catalog is deployed
	NotKnown Agreement = "unknown" // the catalog that is deployed is not known
)

// ServiceStatus is one instance of a worker, or one release of the webhook service.
type ServiceStatus struct {
	rates.Service

	SeenSeconds console.Seconds `json:"seen_seconds" show:"Seen ago"`
	Agreement   Agreement       `json:"agreement" show:"Agrees"`
}

// Diagnosis is the last result of the doctor.
type Diagnosis struct {
	Examination

	// ExaminedAt is when the deployment was examined; zero: it was not, and Problem says why.
	ExaminedAt time.Time `json:"examined_at,omitzero" show:"Examined"`
	Problem    string    `json:"problem,omitempty"`
}

const examinationTakes = 3 * time.Second

const webhookService = "webhook"

// Operations returns the operations that show the deployment and the changes.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "status", Path: "GET /v1/ops/status", Summary: "Show what runs: versions, each service's catalog " +
				"beside the deployed one, settings, and the findings of the worker's doctor",
			Help: "The worker compares what it may look at. Of a secret it is shown that it is set, and no more.",
		}, a.status),
		console.New(console.Row{
			Name: "audit ls", Path: "GET /v1/ops/audit",
			Summary: "List the changes that people made, newest first: who, when, why, and the value before",
			Help:    "It lists changes of every kind; an operation on dead letters is one entry.",
			Empty:   "No change is in this list. Each change that a person makes appears here.",
		}, a.changes),
		console.New(console.Row{
			Name: "catalog ls", Path: "GET /v1/ops/catalog",
			Summary: "Show the catalog that the worker runs with: queues, contracts, topics, sources and targets",
			Help:    "Its hash names the files. The catalog of this machine is shown by billhook admin catalog print.",
		}, a.declared),
		console.New(console.Row{
			Name: "catalog show", Path: "GET /v1/ops/catalog/queues/{id}", Summary: "Show what the worker's catalog " +
				"declares about a queue, who produces for it, and what it accepts",
		}, a.declaredQueue),
		console.New(console.Row{
			Name: "catalog contract", Path: "GET /v1/ops/catalog/contracts/{id}",
			Summary: "Show a contract of the worker's catalog: schema, example, who produces and who consumes it",
		}, a.declaredContract),
	}
}

func (a Reads) status(ctx context.Context, _ audit.Author, _ struct{}) (Status, error) {
	now, d := a.Now().UTC(), cmp.Or(a.Deployment, &Deployment{})
	seen, err := rates.Recent(ctx, a.Store, now)
	if err != nil {
		return Status{}, err
	}
	found := Status{
		Self: d.Self, Catalog: a.Catalog.Hash(), Deployed: []string{}, Services: []ServiceStatus{},
		Configuration: append([]env.Setting{}, d.Settings...),
	}
	found.Doctor = a.examine(ctx, d.Doctor, now)
	found.Deployed = append(found.Deployed, slices.Compact(slices.Sorted(maps.Values(found.Doctor.Catalogs)))...)
	found.Agreement = agreement(found.Catalog, found.Deployed)
	with := found.Deployed
	if len(with) == 0 && found.Catalog != "" {
		with = []string{found.Catalog}
	}
	for _, one := range seen.Services {
		found.Services = append(found.Services, ServiceStatus{Service: one})
	}
	for _, one := range seen.Releases {
		version, catalog, _ := strings.Cut(one.Name, ":") // see serve.Build.Release
		found.Services = append(found.Services, ServiceStatus{
			Service: rates.Service{Name: webhookService, Version: version, Catalog: catalog, SeenAt: one.SeenAt},
		})
	}
	slices.SortStableFunc(found.Services, func(a, b ServiceStatus) int { return b.SeenAt.Compare(a.SeenAt) })
	for i := range found.Services {
		one := &found.Services[i]
		one.SeenSeconds, one.Agreement = console.SecondsOf(now.Sub(one.SeenAt)), agreement(one.Catalog, with)
	}
	return found, nil
}

// agreement compares a hash with the deployed ones. If there are several, no hash agrees.
func agreement(hash string, deployed []string) Agreement {
	switch {
	case hash == "" || len(deployed) == 0:
		return NotKnown
	case len(deployed) == 1 && deployed[0] == hash:
		return Same
	default:
		return Differs
	}
}

var errNoDoctor = errors.New(
	"this worker has nothing to compare the catalog with: its broker is in its own process")

func (a Reads) examine(ctx context.Context, by Doctor, now time.Time) Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, examinationTakes)
	defer cancel()
	found, paused, err := Examination{}, map[string]pause.Pause{}, errNoDoctor
	if by != nil {
		var pauses []pause.Pause
		pauses, err = pause.List(ctx, a.Store)
		for _, one := range pauses {
			paused[one.Queue] = one
		}
	}
	if err == nil {
		found, err = by(ctx, paused)
	}
	if err != nil {
		return Diagnosis{Examination: Examination{Findings: []finding.Finding{}}, Problem: err.Error()}
	}
	found.Findings = append([]finding.Finding{}, found.Findings...)
	return Diagnosis{Examination: found, ExaminedAt: now}
}

// Changed is a change of any kind.
type Changed struct {
	Kind    string `json:"kind" show:"Kind"`
	Subject string `json:"subject" show:"Of which" link:"path"`
	audit.Entry
	// Path is the address of the changed thing in the API; empty: it has none.
	Path string `json:"path,omitempty"`
}

// ListChanges requests the changes of a kind, of one thing, by a person, or all.
type ListChanges struct {
	Kind    string `json:"-" query:"kind" validate:"omitempty,oneof=customer endpoint entry operation payload period product queue stock" help:"only changes of this kind"`
	Subject string `json:"-" query:"subject" validate:"omitempty,printable" help:"only changes of this subject, by its id"`
	Who     string `json:"-" query:"who" validate:"omitempty,printable" help:"only by this person, as the audit names them"`
	console.Span
	console.Page
}

func changedAt(e audit.Entry) string {
	path := search.Paths[search.Kind(e.Kind)]
	if e.Kind == "period" {
		path = "journal/periods/"
	}
	if path == "" {
		return ""
	}
	address := "/v1/ops/" + path + url.PathEscape(e.Subject)
	if e.Tenant != "" {
		address += "?tenant=" + url.QueryEscape(e.Tenant)
	}
	return address
}

func (a Reads) changes(ctx context.Context, _ audit.Author, in ListChanges) (console.List[Changed], error) {
	equal := map[string]any{"kind": in.Kind, "subject": in.Subject, "who": in.Who}
	span := store.Newest{Since: in.Since.Time, Until: in.Until.Time}
	found, next, err := audit.Newest(ctx, a.Store, equal, span, in.After, in.Limit)
	items := make([]Changed, len(found))
	for i, e := range found {
		items[i] = Changed{Kind: e.Kind, Subject: e.Subject, Entry: e, Path: changedAt(e)}
	}
	return console.ListOf(items, next), err
}
