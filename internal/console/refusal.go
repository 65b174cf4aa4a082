package console

import (
	"errors"
	"slices"
	"strings"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Codes is the address of the pages that say what each code means.
const Codes = "/ops/reasons/"

// Kind is what a refusal means for the caller.
type Kind int

// The kinds, each with its HTTP status.
const (
	Malformed Kind = 400 // the request cannot be read
	Forbidden Kind = 403 // the caller may not do it
	Absent    Kind = 404 // there is no such thing
	Conflict  Kind = 409 // it has changed meanwhile, or is in another state
	Refused   Kind = 422 // the request is valid, and what it requests is not allowed
	Broken    Kind = 500 // what is stored cannot be read, and trying again does not help
)

// Refusal is the answer to an error. Its texts repeat nothing of the request.
type Refusal struct {
	// Of is the error, or one that it wraps; nil: the refusal itself is the error.
	Of   error
	Kind Kind
	// Code is for programs. Detail says what the caller can do; empty: the error's text, without that of Of.
	Code, Detail string
}

// Refuse returns a refusal.
func Refuse(kind Kind, code, detail string) *Refusal {
	return &Refusal{Kind: kind, Code: code, Detail: detail}
}

func (r *Refusal) Error() string { return "refused: " + r.Code }

// Refusal returns the operation's answer to an error; nil: none is declared, so the store has failed.
func (o Operation) Refusal(err error) *Refusal {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return r.in(r, err)
	}
	for _, r := range slices.Concat(o.Errors, shared) {
		if errors.Is(err, r.Of) {
			return r.in(r.Of, err)
		}
	}
	return nil
}

// in returns the refusal. If it has no detail, it gets the text of err, without that of known.
func (r Refusal) in(known, err error) *Refusal {
	if r.Detail == "" {
		r.Detail = strings.TrimPrefix(err.Error(), known.Error()+": ")
	}
	return &r
}

// shared are the errors that any operation may return.
var shared = []Refusal{
	{Of: audit.ErrInvalid, Kind: Refused, Code: "refused", Detail: ""},
	{audit.ErrChanged, Conflict, "changed", "Somebody has changed it meanwhile; look at it again."},
	{audit.ErrNoIdentity, Forbidden, "identity_needed", "This takes two people, each " +
		"with an identity of their own: that of Identity-Aware Proxy, one of OPS_ALLOW, or beside emulators and " +
		"stand-ins a name without a token. A token says nothing about who holds it."},
	{
		audit.ErrSamePerson, Refused, "second_person_needed",
		"You have begun this: somebody else has to approve it.",
	},
	{store.ErrBusy, Conflict, "busy", "Others have changed it at the same time; look at it again."},
	{Of: store.ErrAmbiguous, Kind: Malformed, Code: "id_ambiguous", Detail: ""},
	{store.ErrInvalid, Malformed, "page_invalid", "The page is the next of an earlier answer."},
}
