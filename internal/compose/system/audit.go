package system

import (
	"context"
	"net/url"

	"billhook/internal/apps/search"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Changed is what somebody has changed, of any kind.
type Changed struct {
	Kind    string `json:"kind" show:"Kind"`
	Subject string `json:"subject" show:"Of which" link:"path"`
	audit.Entry
	// Path is the address of the API that shows what was changed; empty: none does.
	Path string `json:"path,omitempty"`
}

// ListChanges asks for changes of a kind, about one thing, by a person, or all.
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
	found, next, err := audit.Newest(ctx, a.Store, audit.Search{
		Kind: in.Kind, Subject: in.Subject, Who: in.Who, At: store.Newest{Since: in.Since.Time, Until: in.Until.Time}, After: in.After, Limit: in.Limit,
	})
	items := make([]Changed, len(found))
	for i, e := range found {
		items[i] = Changed{Kind: e.Kind, Subject: e.Subject, Entry: e, Path: changedAt(e)}
	}
	return console.ListOf(items, next), err
}
