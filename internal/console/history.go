package console

import (
	"context"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// HistoryOf asks for the changes of a thing.
type HistoryOf struct {
	Owned
	Page
	ID string `json:"-" path:"id" validate:"required" help:"id"`
}

// History is the operation "<noun> history": who has changed a tenant's thing of a kind, when and why.
func History(noun, kind string, from store.Querier) Operation {
	return New(history(noun), func(ctx context.Context, _ audit.Author, in HistoryOf) (List[audit.Entry], error) {
		return changes(ctx, from, audit.Subject{Kind: kind, Tenant: in.Tenant, ID: in.ID}, in.Page)
	})
}

// HistoryOfAll asks for the changes of a thing that belongs to no tenant.
type HistoryOfAll struct {
	Page
	ID string `json:"-" path:"id" validate:"required" help:"id"`
}

// HistoryWithoutTenant is History of a thing that belongs to no tenant.
func HistoryWithoutTenant(noun, kind string, from store.Querier) Operation {
	return New(history(noun), func(ctx context.Context, _ audit.Author, in HistoryOfAll) (List[audit.Entry], error) {
		return changes(ctx, from, audit.Subject{Kind: kind, ID: in.ID}, in.Page)
	})
}

func history(noun string) Row {
	return Row{
		Name: noun + " history", Path: "GET /v1/ops/" + noun + "/{id}/changes", Summary: "Show who changed it, when and why, newest first",
		Empty: "Nobody has changed it yet.",
	}
}

func changes(ctx context.Context, from store.Querier, of audit.Subject, page Page) (List[audit.Entry], error) {
	return Listed(of.List(ctx, from, page.After, page.Limit))
}
