package seal

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// VerifyBooks requests a page of the verification of the books.
type VerifyBooks struct {
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"whose books; empty: those of all tenants, and what belongs to none"`
	Part   string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
}

// ListSeals requests the seals of a tenant, or of all.
type ListSeals struct {
	console.OwnedList
	All bool `json:"-" query:"all" help:"those of all tenants, tenant by tenant, the oldest first"`
}

// EntryOf names an entry, by its id or by the id of the event that made it.
type EntryOf struct {
	console.Owned
	ID string `json:"-" path:"entry" validate:"required" help:"event or entry"`
}

// Proof is the proof that an entry is in its seal.
type Proof struct {
	Entry string `json:"entry" show:"Entry" link:"journal/entries/{entry}"`
	// Proof is the text that billhook ledger check-proof reads.
	Proof string `json:"proof" show:"Proof"`
}

// Notes says what the proof is for.
func (Proof) Notes() []string {
	return []string{
		"It proves to anybody who has kept the seal that the entry is in it. Keep it as a file: billhook ledger " +
			"check-proof checks it offline.",
	}
}

// maxListed bounds a page of seals: each has the sums of all its accounts.
const maxListed = 100

// Operations are what people do with seals. Findings are logged.
func Operations(v Verifier, log *slog.Logger) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "seals ls", Path: "GET /v1/ops/journal/seals",
			Summary: "List the seals of a tenant's books with their hashes, newest first",
			Empty:   "Nothing of this tenant is sealed yet. The task seal-journal seals what was posted.",
			Errors:  Failures,
		}, func(ctx context.Context, _ audit.Author, in ListSeals) (console.List[Seal], error) {
			if in.All {
				query := store.Query{Collection: Seals, After: in.After, Limit: min(in.Limit, maxListed)}
				return console.Listed(store.List(ctx, v.From, query, decode[Seal]))
			}
			return console.Listed(List(ctx, v.From, in.Tenant, in.After, min(in.Limit, maxListed)))
		}),
		console.New(console.Row{
			Name: "journal tenants", Path: "GET /v1/ops/journal/tenants",
			Summary: "List the tenants whose books have seals",
			Empty:   "Nothing is sealed yet. The task seal-journal seals what was posted.",
		}, func(ctx context.Context, _ audit.Author, _ struct{}) (console.List[string], error) {
			tenants, err := Tenants(ctx, v.From)
			return console.ListOf(tenants, store.Cursor{}), err
		}),
		console.New(console.Row{
			Name: "ledger prove", Path: "GET /v1/ops/journal/entries/{entry}/proof", Before: "journal show",
			Errors:  Failures,
			Summary: "Print the proof that an entry is in its seal",
		}, func(ctx context.Context, _ audit.Author, in EntryOf) (Proof, error) {
			doc, err := ledger.Find(ctx, v.From, in.Tenant, in.ID, ErrNoEntry)
			if err != nil {
				return Proof{}, err
			}
			text, err := Prove(ctx, v.From, doc.Key.ID)
			return Proof{Entry: doc.Key.ID, Proof: string(text)}, err
		}),
		console.New(console.Row{
			Name: "ledger verify", Path: "GET /v1/ops/journal/verify", Errors: Failures,
			Summary: "Verify every seal and every entry, part by part, and name each that was changed, removed, " +
				"inserted or moved",
			Help: "It also names entries that no event and no person made, and entries that were added to a month " +
				"after it was closed. " +
				"Whoever can write to the whole store can seal everything again: that is found by ledger compare, with " +
				"seals that were kept elsewhere.",
		}, func(ctx context.Context, _ audit.Author, in VerifyBooks) (part Verified, err error) {
			if in.Tenant == "" {
				part, err = v.All(ctx, in.Part)
			} else {
				part, err = v.Page(ctx, in.Tenant, in.Part)
			}
			for _, finding := range part.Findings {
				finding.Log(ctx, log)
			}
			return part, err
		}),
	}
}

// Failures are the answers if the books are broken.
var Failures = append([]console.Refusal{
	{Of: ErrBroken, Kind: console.Conflict, Code: "books_changed", Detail: ledger.ChangedBooks},
	{Of: ErrOverflow, Kind: console.Broken, Code: "books_broken", Detail: Unreadable},
}, ledger.Failures...)

// Unreadable is the detail of an answer if the books cannot be read.
const Unreadable = "What is stored of the books cannot be read; billhook ledger verify says which " +
	"document it is."

// Verifications holds one document, the progress of the daily verification of all books.
const Verifications = "sealVerifications"

var stateKey = store.Key{Collection: Verifications, ID: "books"}

// The bounds of a step: after how many documents it reads no further page, and how many findings are stored.
const (
	stepReads    = 20_000
	keptFindings = 20
)

// Verdict says what a verification of all books has checked and found.
type Verdict struct {
	// BegunAt is when it began, and FinishedAt when it ended; zero: it has not.
	BegunAt    time.Time `json:"begun_at,omitzero" store:"begun_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero" store:"finished_at,omitzero"`
	Counts     `store:",inline"`
	// Reads is about how many documents it has read.
	Reads int64 `json:"-" store:"reads,omitzero"`
	// Found counts the findings; Findings has the first of them.
	Found    int64     `json:"found" store:"found"`
	Findings []Finding `json:"findings,omitempty" store:"findings,omitzero"`
}

// State is the progress of the daily verification.
type State struct {
	// Running is the unfinished verification, unless its BegunAt is zero; Last is the last finished one.
	Running Verdict `json:"running" store:"running"`
	Last    Verdict `json:"last" store:"last"`
	At      string  `json:"-" store:"at"`

	version store.Version
}

// Worst returns the verdict to report: the running verification's, once it has found something.
func (s State) Worst() Verdict {
	if s.Running.Found > 0 {
		return s.Running
	}
	return s.Last
}

// Standing reads the state. If it cannot be read, the verification begins anew.
func Standing(ctx context.Context, from store.Getter) (State, error) {
	doc, err := store.Find(ctx, from, stateKey)
	s := State{version: doc.Version}
	_ = store.Decode(doc.Fields, &s) // no field is required
	return s, err
}

// DailyReads bounds how many documents a verification reads in a day: books that need no more are verified
// every day, larger ones within 28 days. last is how many the verification before has read.
func DailyReads(last int64) int64 { return max(200_000, last/28) }

// due reports whether the running verification may read more now or, if none is running, whether the next one
// begins: a day after the last one did.
func (s State) due(now time.Time) bool {
	if v := s.Running; !v.BegunAt.IsZero() {
		days := 1 + max(0, int64(now.Sub(v.BegunAt)/day))
		return v.Reads < days*DailyReads(s.Last.Reads)
	}
	ago := now.Sub(s.Last.BegunAt)
	return ago < 0 || ago >= day
}

const day = 24 * time.Hour

// Watch verifies the books of all tenants, at most once a day, in steps. Every field is required.
type Watch struct {
	Verifier

	Store  store.Store
	Now    func() time.Time
	Report func(Finding)
}

// Step continues the verification, or begins the next one if the last began a day ago, within the bounds of
// ctx, stepReads and DailyReads. It stores the state after each page. If two steps run at once, one of them
// ends early. The error is a read or write error.
func (w Watch) Step(ctx context.Context) (State, error) {
	s, err := Standing(ctx, w.Store)
	if err != nil {
		return s, err
	}
	now := func() time.Time { return w.Now().UTC().Truncate(time.Microsecond) }
	w.Moves = w.Store
	v := &s.Running
	for read := int64(0); read < stepReads && s.due(now()) && ctx.Err() == nil; {
		if v.BegunAt.IsZero() {
			*v, s.At = Verdict{BegunAt: now()}, ""
		}
		part, err := w.All(ctx, s.At)
		switch {
		case errors.Is(err, ErrPage): // somebody has changed the state
			*v, s.At = Verdict{BegunAt: now()}, ""
			continue
		case err != nil && ctx.Err() != nil:
			return s, nil //nolint:nilerr // the next step verifies this page again
		case err != nil:
			return s, err
		}
		read, v.Reads = read+part.reads, v.Reads+part.reads
		for _, finding := range part.Findings { // before the state is stored: twice is better than never
			w.Report(finding)
		}
		v.add(part.Counts)
		v.Found += int64(len(part.Findings))
		v.Findings = append(v.Findings, part.Findings...)
		v.Findings = v.Findings[:min(len(v.Findings), keptFindings)]
		if s.At = part.Next; s.At == "" {
			v.FinishedAt = now()
			s.Last, s.Running = *v, Verdict{}
		}
		switch err := keep(ctx, w.Store, stateKey, &s.version, store.Encode(&s)); {
		case errors.Is(err, errOvertaken):
			return Standing(ctx, w.Store) // another step was faster
		case err != nil || v.BegunAt.IsZero():
			return s, err
		}
	}
	return s, nil
}
