package ops

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// Self is one worker, as it knows itself.
type Self struct {
	Build    serve.Build `json:"build"`
	Instance string      `json:"instance"`
	// Pool is that of the queues that it serves; empty: all.
	Pool      string    `json:"pool"`
	StartedAt time.Time `json:"started_at"`
}

// Doctor compares what is deployed with the catalog.
type Doctor interface {
	// Examine changes nothing, and ends with ctx. paused are the pauses by queue. The error says what
	// could not be read, and has no payload.
	Examine(ctx context.Context, paused map[string]pause.Pause) (Examination, error)
}

// Examination is what a Doctor has found.
type Examination struct {
	Findings []finding.Finding `json:"findings"`
	// Unread counts what the doctor may not look at.
	Unread int `json:"unread"`
	// Catalogs are the hashes of the catalogs that the queues were deployed from, by queue, as far as it
	// is known.
	Catalogs map[string]string `json:"-"`
}

// Status is how the deployment stands, as this worker sees it.
type Status struct {
	Self

	// Catalog is the hash of this worker's catalog; empty: it was made of no files.
	Catalog string `json:"catalog"`
	// Deployed are the hashes of the catalogs that the queues were deployed from: one where all is well,
	// none where it is not known.
	Deployed []string `json:"deployed"`
	// Agreement compares both.
	Agreement Agreement `json:"agreement"`
	// Services are the workers and the doors that were seen in this hour and the one before, the one seen
	// last first.
	Services []ServiceStatus `json:"services"`
	// Configuration are the settings of this worker, without secrets.
	Configuration []env.Setting `json:"configuration"`
	Doctor        Diagnosis     `json:"doctor"`
}

// Agreement says whether a catalog is the deployed one, or this worker's where that is not known.
type Agreement string

// What a comparison of catalogs says.
const (
	Same     Agreement = "same"
	Differs  Agreement = "differs"
	NotKnown Agreement = "unknown"
)

// ServiceStatus is one instance of a worker, or one release of the door.
type ServiceStatus struct {
	rates.Service

	// SeenSeconds is how long ago it was seen.
	SeenSeconds int64     `json:"seen_seconds"`
	Agreement   Agreement `json:"agreement"`
}

// Diagnosis is what the doctor said last.
type Diagnosis struct {
	Examination

	// ExaminedAt is when; zero: nothing was examined, and Problem says why.
	ExaminedAt time.Time `json:"examined_at,omitzero"`
	Problem    string    `json:"problem,omitempty"`
}

// Healthy reports whether all was looked at, or all that may be, and nothing was found.
func (d Diagnosis) Healthy() bool { return d.Problem == "" && len(d.Findings) == 0 }

// What bounds an examination: how long it may take, and how long what it says is shown again.
const (
	examinationTakes  = 3 * time.Second
	examinationIsGood = time.Minute
)

const door = "webhook"

func (a *API) status(ctx context.Context) (Status, error) {
	now := a.Now().UTC()
	seen, err := rates.Recent(ctx, a.Store, now)
	if err != nil {
		return Status{}, err
	}
	found := Status{Self: a.Self, Catalog: a.Catalog.Hash(), Deployed: []string{}, Services: []ServiceStatus{}, Configuration: append([]env.Setting{}, a.Settings...)}
	found.Doctor = a.examined.diagnosis(ctx, a, now)
	for _, hash := range found.Doctor.Catalogs {
		found.Deployed = append(found.Deployed, hash)
	}
	slices.Sort(found.Deployed)
	found.Deployed = slices.Compact(found.Deployed)
	found.Agreement = agreement(found.Catalog, found.Deployed)
	with := found.Deployed
	if len(with) == 0 && found.Catalog != "" {
		with = []string{found.Catalog}
	}
	for _, one := range seen.Services {
		found.Services = append(found.Services, ServiceStatus{Service: one})
	}
	for _, one := range seen.Doors {
		version, catalog := serve.ReleaseOf(one.Release)
		found.Services = append(found.Services, ServiceStatus{Service: rates.Service{Service: door, Version: version, Catalog: catalog, SeenAt: one.SeenAt}})
	}
	slices.SortStableFunc(found.Services, func(a, b ServiceStatus) int { return b.SeenAt.Compare(a.SeenAt) })
	for i := range found.Services {
		one := &found.Services[i]
		one.SeenSeconds, one.Agreement = max(0, int64(now.Sub(one.SeenAt).Seconds())), agreement(one.Catalog, with)
	}
	return found, nil
}

// agreement compares a hash with those that are deployed. Queues of several catalogs agree with none.
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

var errNoDoctor = errors.New("this worker has nothing to compare the catalog with: its broker is in its own process")

type examined struct {
	mu   sync.Mutex
	last *Diagnosis
	at   time.Time
}

// diagnosis is at most examinationIsGood old.
func (e *examined) diagnosis(ctx context.Context, a *API, now time.Time) Diagnosis {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil || now.Sub(e.at) >= examinationIsGood {
		found := a.examine(ctx, now)
		e.last, e.at = &found, now
	}
	return *e.last
}

// examine has the doctor look. The person who asks may leave: others wait for the answer.
func (a *API) examine(ctx context.Context, now time.Time) Diagnosis {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), examinationTakes)
	defer cancel()
	found, err := a.look(ctx)
	if err != nil {
		return Diagnosis{Examination: Examination{Findings: []finding.Finding{}}, Problem: err.Error()}
	}
	found.Findings = append([]finding.Finding{}, found.Findings...)
	return Diagnosis{Examination: found, ExaminedAt: now}
}

func (a *API) look(ctx context.Context) (Examination, error) {
	if a.Doctor == nil {
		return Examination{}, errNoDoctor
	}
	pauses, err := pause.List(ctx, a.Store)
	if err != nil {
		return Examination{}, err
	}
	paused := map[string]pause.Pause{}
	for _, one := range pauses {
		paused[one.Queue] = one
	}
	return a.Doctor.Examine(ctx, paused)
}

// audited answers what people have changed, of all kinds, the newest first.
func (a *API) audited(r *http.Request) (List[audit.Entry], error) {
	params := read(r, "kind", "subject", "who", "since", "until", "limit", "page")
	wanted := audit.Search{Kind: params.text("kind"), Subject: params.text("subject"), Who: params.text("who"), Limit: params.limit(50, most)}
	at := params.page("audit", params.span(a.Now().UTC()))
	if err := params.err(); err != nil {
		return List[audit.Entry]{}, err
	}
	wanted.At, wanted.After = store.Newest{Since: at.since, Until: at.until}, at.Cursor
	found, err := a.Audit(r.Context(), wanted)
	if err != nil {
		return List[audit.Entry]{}, err
	}
	next := ""
	if len(found) > wanted.Limit {
		found = found[:wanted.Limit]
		next = params.next("audit", at, found[wanted.Limit-1].Cursor())
	}
	items := make([]audit.Entry, len(found))
	for i, f := range found {
		items[i] = f.Entry
	}
	return pageOf(items, next), nil
}

// Audit returns the newest entries and operations that are wanted: one more than the limit where there
// are more.
func (a Reads) Audit(ctx context.Context, wanted audit.Search) ([]audit.Found, error) {
	limit := wanted.Limit
	wanted.Limit++
	found, err := audit.Newest(ctx, a.Store, wanted)
	if err != nil {
		return nil, err
	}
	begun, err := a.begun(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for _, op := range begun {
		found = append(found, auditOf(op))
	}
	slices.SortFunc(found, func(a, b audit.Found) int {
		if order := b.At.Compare(a.At); order != 0 {
			return order
		}
		return strings.Compare(b.ID, a.ID)
	})
	return found[:min(len(found), limit+1)], nil
}

// begun are the operations among what is wanted. One that is wanted by its id is read by it.
func (a Reads) begun(ctx context.Context, wanted audit.Search) ([]deadletter.Operation, error) {
	operator := &deadletter.Operator{Store: a.Store}
	switch {
	case wanted.Kind != "" && wanted.Kind != deadletter.AuditKind:
		return nil, nil
	case wanted.Subject == "":
		return operator.Begun(ctx, wanted.Who, wanted.At, wanted.After, wanted.Limit)
	}
	op, err := operator.Operation(ctx, wanted.Subject)
	if errors.Is(err, deadletter.ErrUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	span, after := wanted.At, wanted.After
	switch {
	case wanted.Who != "" && wanted.Who != op.Who,
		op.CreatedAt.Before(span.Since), !span.Until.IsZero() && !op.CreatedAt.Before(span.Until),
		!after.IsZero() && (op.CreatedAt.After(after.At) || (op.CreatedAt.Equal(after.At) && op.ID >= after.ID)):
		return nil, nil
	}
	return []deadletter.Operation{op}, nil
}

// auditOf is an operation as an entry of the audit about itself.
func auditOf(op deadletter.Operation) audit.Found {
	after := map[string]any{"queue": op.Filter.Queue, "total": op.Total, "progress": string(op.Progress)}
	if op.ApprovedBy != "" {
		after["approved_by"] = op.ApprovedBy
	}
	return audit.Found{ID: op.ID, Entry: audit.Entry{
		Kind: deadletter.AuditKind, Subject: op.ID, Action: string(op.Kind), Who: op.Who, Why: op.Why, At: op.CreatedAt, After: after,
	}}
}

const maxText = 500

// text is a parameter that may have any printable characters; empty where there is none.
func (p *parameters) text(name string) string {
	value := p.values.Get(name)
	if len(value) > maxText || !utf8.ValidString(value) || audit.Escape(value) != value {
		p.refuse(name+"_invalid", "The parameter "+name+" has at most 500 bytes, and none that a terminal would act on.")
	}
	return value
}
