package console

import (
	"errors"
	"slices"
	"strings"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Kind is what a refusal means for who asked.
type Kind int

// The kinds, by the status that HTTP has for them.
const (
	Malformed Kind = 400 // the request cannot be read
	Forbidden Kind = 403 // the caller may not do it
	Absent    Kind = 404 // there is no such thing
	Conflict  Kind = 409 // it has changed meanwhile, or is in another state
	Refused   Kind = 422 // the request is read, and asks for what must not be
	Broken    Kind = 500 // what is stored cannot be read, and trying again does not help
)

// Refusal is how an error is answered. Its texts repeat nothing of the request.
type Refusal struct {
	// Of is the error that is answered so, or an error that it wraps; nil: the refusal is returned itself.
	Of   error
	Kind Kind
	// Code is for programs. Detail says what the caller can do; empty: what the error's own text says behind
	// that of Of, or of the refusal that it wraps. The text then is ours.
	Code, Detail string
}

// Refuse returns a refusal.
func Refuse(kind Kind, code, detail string) *Refusal {
	return &Refusal{Kind: kind, Code: code, Detail: detail}
}

func (r *Refusal) Error() string { return "refused: " + r.Code }

// Refusal is how the operation answers an error; nil: nobody declared how, and so the store has failed.
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

// in is the refusal with the detail that it has, or that it gets, in an error that wraps known.
func (r Refusal) in(known, err error) *Refusal {
	if r.Detail == "" {
		r.Detail = strings.TrimPrefix(err.Error(), known.Error()+": ")
	}
	return &r
}

// shared are the errors that any operation may return.
var shared = []Refusal{
	{Of: audit.ErrInvalid, Kind: Refused, Code: "refused", Detail: ""},
	{
		Of: audit.ErrChanged, Kind: Conflict, Code: "changed",
		Detail: "Somebody has changed it meanwhile; look at it again.",
	},
	{
		Of: audit.ErrNoIdentity, Kind: Forbidden, Code: "identity_needed", Detail: "This takes two people, each " +
			"with an identity of their own: that of Identity-Aware Proxy, one of OPS_ALLOW, or beside emulators and " +
			"stand-ins a name without a token. A token says nothing about who holds it.",
	},
	{
		Of: audit.ErrSamePerson, Kind: Refused, Code: "second_person_needed",
		Detail: "You have begun this: somebody else has to approve it.",
	},
	{
		Of: store.ErrBusy, Kind: Conflict, Code: "busy",
		Detail: "Others have changed it at the same time; look at it again.",
	},
	{Of: store.ErrAmbiguous, Kind: Malformed, Code: "id_ambiguous", Detail: ""},
	{
		Of: store.ErrInvalid, Kind: Malformed, Code: "page_invalid",
		Detail: "The page is the next of an earlier answer.",
	},
}
