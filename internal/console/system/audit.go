package system

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"billhook/internal/apps/search"

	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
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

// audit returns the newest entries and operations that are wanted: one more than the limit where there are more.
func (a Reads) audit(ctx context.Context, wanted audit.Search) ([]audit.Found, error) {
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
		return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID))
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

func auditOf(op deadletter.Operation) audit.Found {
	after := map[string]any{"queue": op.Filter.Queue, "total": op.Total, "progress": string(op.Progress)}
	if op.ApprovedBy != "" {
		after["approved_by"] = op.ApprovedBy
	}
	return audit.Found{ID: op.ID, Entry: audit.Entry{
		Kind: deadletter.AuditKind, Subject: op.ID, Action: string(op.Kind), Who: op.Who, Why: op.Why, At: op.CreatedAt, After: after,
	}}
}
