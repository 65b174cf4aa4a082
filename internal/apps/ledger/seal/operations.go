package seal

import (
	"context"
	"log/slog"
	"strconv"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// VerifyBooks asks for a part of the verification of the books.
type VerifyBooks struct {
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"whose books; empty: those of all tenants, and what belongs to none"`
	Part   string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
}

// EntryOf asks for an entry, by its id or by that of the event that made it.
type EntryOf struct {
	console.Owned
	ID string `json:"-" path:"entry" validate:"required" help:"event or entry"`
}

// Proof is the proof that an entry stands in its seal.
type Proof struct {
	Entry string `json:"entry" show:"Entry" link:"journal/entries/{entry}"`
	// Proof is the text that billhook ledger check-proof and other people's tools read.
	Proof string `json:"proof" show:"Proof"`
}

// Notes says what the proof is for.
func (Proof) Notes() []string {
	return []string{"It shows a stranger that the entry stands in its seal. Keep it as a file: billhook ledger check-proof " +
		"checks it without asking anybody."}
}

// maxListed bounds a page of seals: each has the sums of all its accounts.
const maxListed = 100

// Operations are what people do with seals, and by them. What is found wrong is logged.
func Operations(v Verifier, log *slog.Logger) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "seals ls", Path: "GET /v1/ops/journal/seals", Summary: "List the seals of a tenant's books with their hashes, newest first",
			Empty: "Nothing of this tenant is sealed yet. The task seal-journal seals what was posted.", Errors: Failures,
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Seal], error) {
			before, _ := strconv.ParseInt(in.After.ID, 10, 64) // without one they begin with the newest
			seals, next, err := List(ctx, v.From, in.Tenant, before, min(in.Limit, maxListed))
			behind := store.Cursor{}
			if next > 0 {
				behind.ID = strconv.FormatInt(next, 10)
			}
			return console.ListOf(seals, behind), err
		}),
		console.New(console.Row{
			Name: "journal tenants", Path: "GET /v1/ops/journal/tenants", Summary: "List the tenants whose books have seals",
			Empty: "Nothing is sealed yet. The task seal-journal seals what was posted.",
		}, func(ctx context.Context, _ audit.Author, _ struct{}) (console.List[string], error) {
			tenants, err := Tenants(ctx, v.From)
			return console.ListOf(tenants, store.Cursor{}), err
		}),
		console.New(console.Row{
			Name: "ledger prove", Path: "GET /v1/ops/journal/entries/{entry}/proof", Before: "journal show", Errors: Failures,
			Summary: "Print the proof that an entry is in its seal",
		}, func(ctx context.Context, _ audit.Author, in EntryOf) (Proof, error) {
			id := ledger.IDOf(in.Tenant, in.ID)
			text, err := Prove(ctx, v.From, id)
			return Proof{Entry: id, Proof: string(text)}, err
		}),
		console.New(console.Row{
			Name: "ledger verify", Path: "GET /v1/ops/journal/verify", Errors: Failures,
			Summary: "Verify every seal and every entry, part by part, and name each that was changed, removed, inserted or moved",
			Help: "It also names entries that no event and no person made, and entries that were added to a month after it was closed. " +
				"Whoever can write to the whole store can seal everything again: that is found by ledger compare, with seals that were kept elsewhere.",
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

// Failures are how what goes wrong with the books is answered.
var Failures = append([]console.Refusal{
	{Of: ErrNoEntry, Kind: console.Absent, Code: "entry_unknown", Detail: "The books have no entry of that id."},
	{Of: ErrUnsealed, Kind: console.Conflict, Code: "entry_unsealed", Detail: unsealedYet},
	{Of: ErrPage, Kind: console.Malformed, Code: "page_invalid", Detail: "The page is the next of an earlier answer."},
	{Of: ErrBroken, Kind: console.Conflict, Code: "books_changed", Detail: ledger.ChangedBooks},
	{Of: ErrOverflow, Kind: console.Broken, Code: "books_broken", Detail: Unreadable},
}, ledger.Failures...)

const (
	unsealedYet = "The entry is not sealed yet, and nothing proves it before; the task seal-journal seals it, so ask again."

	// Unreadable is how it is answered that the books are broken.
	Unreadable = "What is stored of the books cannot be read; billhook ledger verify says which document it is."
)
