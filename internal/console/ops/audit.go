package ops

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// audited answers what people have changed, of all kinds, the newest first. An operation on dead
// letters is among it as an entry about itself.
func (a *API) audited(r *http.Request) (List[audit.Entry], error) {
	params := read(r, "kind", "subject", "who", "since", "until", "limit", "page")
	wanted := audit.Search{Kind: params.text("kind"), Subject: params.text("subject"), Who: params.text("who"), Limit: params.limit(lines, most)}
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

// maxText bounds a parameter that may be any text, in bytes.
const maxText = 500

// text is a parameter that may have any printable characters; empty where there is none.
func (p *parameters) text(name string) string {
	value := p.values.Get(name)
	if len(value) > maxText || !utf8.ValidString(value) || audit.Escape(value) != value {
		p.refuse(name+"_invalid", "The parameter "+name+" has at most 500 bytes, and none that a terminal would act on.")
	}
	return value
}
