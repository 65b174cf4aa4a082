package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Page is the part of a request for a list that says how long the page is and where it begins.
type Page struct {
	Limit int    `json:"-" query:"limit" default:"100" validate:"min=1,max=1000" help:"how many items a page has, at most"`
	Token string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
	// After is where the page begins; zero: with the first item. It comes from the token.
	After store.Cursor `json:"-"`
}

// List is a page of a list.
type List[T any] struct {
	Items []T `json:"items"`
	Continued
}

// Continued is the part of an answer that leads to the next page of its list.
type Continued struct {
	// Next is the value of the parameter page for the next page; empty: this is the last.
	Next string `json:"next"`
	// Behind is the cursor that Next is made from; zero: this is the last page.
	Behind store.Cursor `json:"-"`
}

// OwnedList requests a list of a tenant's things.
type OwnedList struct {
	Owned
	Page
}

// ListOf returns a page with these items. next is where the next page begins; zero: this is the last.
func ListOf[T any](items []T, next store.Cursor) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{items, Continued{Behind: next}}
}

// Listed is ListOf for the results of a read.
func Listed[T any](items []T, next store.Cursor, err error) (List[T], error) {
	return ListOf(items, next), err
}

func (List[T]) item() reflect.Type { return reflect.TypeFor[T]() }

// page decodes the page token of a request for a list. It refuses a token of another list or of other
// filters. A token grants nothing: a forged one shows only what its sender could have requested without it.
func (o Operation) page(in Input, request reflect.Value) error {
	page := partOf[Page](request)
	if page == nil || page.Token == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(page.Token)
	parts, times := strings.SplitN(string(raw), "|", 5), [3]time.Time{}
	ok := err == nil && len(page.Token) <= 2*store.MaxIDBytes && len(parts) == 5
	ok = ok && parts[0] == o.fingerprint(in) && parts[4] != ""
	for i := 0; ok && i < len(times); i++ {
		micros, err := strconv.ParseInt(parts[i+1], 10, 64)
		times[i], ok = time.UnixMicro(micros).UTC(), err == nil
	}
	at, since, until, span := times[0], times[1], times[2], cmp.Or(partOf[Span](request), &Span{})
	if !ok || since.IsZero() != span.Since.IsZero() || until.IsZero() != span.Until.IsZero() ||
		at.Before(since) || !until.IsZero() && !at.Before(until) {
		return Refuse(Malformed, "page_invalid",
			"This page token is not of this list with these filters; start again without one.")
	}
	page.After = store.Cursor{At: at, ID: parts[4]} // the store checks the id
	span.Since, span.Until = Moment{since}, Moment{until}
	return nil
}

// next sets the token of the next page. The token has the first page's span of time, so ages count from then.
func (o Operation) next(in Input, request, answer reflect.Value) {
	part, span := partOf[Continued](answer), cmp.Or(partOf[Span](request), &Span{})
	if part == nil || part.Behind.IsZero() {
		return
	}
	at, since, until := part.Behind.At.UnixMicro(), span.Since.UnixMicro(), span.Until.UnixMicro()
	text := fmt.Sprintf("%s|%d|%d|%d|%s", o.fingerprint(in), at, since, until, part.Behind.ID)
	part.Next = base64.RawURLEncoding.EncodeToString([]byte(text))
}

// fingerprint returns a hash of the list's address with its filters.
func (o Operation) fingerprint(in Input) string {
	filters := url.Values{}
	for name, given := range in.Query {
		if name != "page" && name != "limit" {
			filters[name] = given
		}
	}
	sum := sha256.Sum256([]byte(o.URL(Input{Path: in.Path, Query: filters})))
	return hex.EncodeToString(sum[:8])
}

// partOf returns the struct of type T that a request or an answer embeds; nil: it embeds none.
func partOf[T any](whole reflect.Value) (part *T) {
	if whole.Kind() == reflect.Struct {
		if field := whole.FieldByName(reflect.TypeFor[T]().Name()); field.IsValid() {
			part, _ = field.Addr().Interface().(*T)
		}
	}
	return part
}

// AllOr returns the state to filter a list by; empty, which means any, if the request says all.
func AllOr[S ~string](state string) S {
	if state == "all" {
		return ""
	}
	return S(state)
}

// HistoryOf requests the changes of a thing that belongs to no tenant.
type HistoryOf struct {
	Page
	ID string `json:"-" path:"id" validate:"required" help:"id"`
}

// History returns the operation "<noun> history": who has changed a tenant's thing of a kind, when and why.
func History(noun, kind string, from store.Querier) Operation {
	type owned struct {
		Owned
		HistoryOf
	}
	return New(history(noun),
		func(ctx context.Context, _ audit.Author, in owned) (List[audit.Entry], error) {
			return Listed(audit.Subject{Kind: kind, Tenant: in.Tenant, ID: in.ID}.List(ctx, from, in.After, in.Limit))
		})
}

// HistoryWithoutTenant is History for things that belong to no tenant.
func HistoryWithoutTenant(noun, kind string, from store.Querier) Operation {
	return New(history(noun),
		func(ctx context.Context, _ audit.Author, in HistoryOf) (List[audit.Entry], error) {
			return Listed(audit.Subject{Kind: kind, ID: in.ID}.List(ctx, from, in.After, in.Limit))
		})
}

func history(noun string) Row {
	return Row{
		Name: noun + " history", Path: "GET /v1/ops/" + noun + "/{id}/changes",
		Summary: "Show who changed it, when and why, newest first",
		Empty:   "Nobody has changed it yet.",
	}
}
