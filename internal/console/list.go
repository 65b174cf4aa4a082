package console

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"billhook/internal/platform/store"
)

// Page is the part of a request for a list that says how much of it and from where.
type Page struct {
	Limit int    `json:"-" query:"limit" default:"100" validate:"min=1,max=1000" help:"the most items of a page"`
	Token string `json:"-" query:"page" help:"the member next of the answer before"`
	// After is where the page begins; zero: with the first item. It comes from the token.
	After store.Cursor `json:"-"`
}

// List is a page of a list.
type List[T any] struct {
	Items []T `json:"items"`
	// Next is the parameter page for the items behind these; empty: there are none.
	Next string `json:"next"`

	next store.Cursor
}

// ListOf is the page of these items, and next is where the page behind it begins; zero: it is the last.
func ListOf[T any](items []T, next store.Cursor) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{Items: items, next: next}
}

// cursored is a List of any items.
type cursored interface {
	cursor() store.Cursor
	with(token string) any
}

func (l List[T]) cursor() store.Cursor { return l.next }

func (l List[T]) with(token string) any { l.Next = token; return l }

// itemOf is the type of a list's items, and reports whether the type is a List.
func itemOf(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct || !t.Implements(reflect.TypeFor[cursored]()) {
		return nil, false
	}
	items, ok := t.FieldByName("Items")
	if !ok {
		return nil, false
	}
	return items.Type.Elem(), true
}

// page reads the token of a request for a list. It refuses one of another list or of other filters. A token grants
// nothing: whoever makes one up sees what they could have asked for.
func (o Operation) page(in Input, request reflect.Value) error {
	page := pageOf(request)
	if page == nil || page.Token == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(page.Token)
	if parts := strings.SplitN(string(raw), "|", 3); err == nil && len(page.Token) <= 2*store.MaxIDBytes && len(parts) == 3 && parts[0] == o.print(in) {
		if micros, err := strconv.ParseInt(parts[1], 10, 64); err == nil {
			page.After = store.Cursor{At: time.UnixMicro(micros).UTC(), ID: parts[2]} // The store judges the id.
			return nil
		}
	}
	return Refuse(Malformed, "page_invalid", "This page token is not of this list with these filters; start again without one.")
}

// next is the answer with the token of the page behind it.
func (o Operation) next(in Input, answer any) any {
	list, ok := answer.(cursored)
	if !ok || list.cursor().IsZero() {
		return answer
	}
	text := o.print(in) + "|" + strconv.FormatInt(list.cursor().At.UnixMicro(), 10) + "|" + list.cursor().ID
	return list.with(base64.RawURLEncoding.EncodeToString([]byte(text)))
}

// print is a fingerprint of a list and its filters.
func (o Operation) print(in Input) string {
	filters := url.Values{}
	for name, given := range in.Query {
		if name != "page" && name != "limit" {
			filters[name] = given
		}
	}
	sum := sha256.Sum256([]byte(o.URL(Input{Path: in.Path, Query: filters})))
	return hex.EncodeToString(sum[:8])
}

// pageOf is the Page that a request embeds; nil: it embeds none.
func pageOf(request reflect.Value) *Page {
	field := request.FieldByName("Page")
	if !field.IsValid() || !field.CanAddr() {
		return nil
	}
	page, _ := field.Addr().Interface().(*Page)
	return page
}

// AllOr is the state that a list is of; empty: of any, where the request says all.
func AllOr[S ~string](state string) S {
	if state == "all" {
		return ""
	}
	return S(state)
}
