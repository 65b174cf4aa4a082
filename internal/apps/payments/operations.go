package payments

import (
	"context"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// ListOfRefunds asks for the refunds in a state.
type ListOfRefunds struct {
	State string `json:"-" query:"state" validate:"oneof=under_way refunded refused all" default:"all" help:"the state, or all"`
	console.Page
}

// RefundOf asks for the refund of a payment.
type RefundOf struct {
	console.Owned
	Payment string `json:"-" path:"payment" validate:"required" help:"payment id"`
}

// Operations are what people do with refunds, which is to look at them: a message asks for one.
func Operations(from store.Store) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "refunds ls", Path: "GET /v1/ops/refunds", Summary: "List refunds, all or those in one state, newest first",
			Empty: "No refund is in this list. A refund message starts one.",
		}, func(ctx context.Context, _ audit.Author, in ListOfRefunds) (console.List[Refund], error) {
			return console.Listed(ListRefunds(ctx, from, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "refunds show", Path: "GET /v1/ops/refunds/{payment}", Summary: "Show the refund of a payment, and the message that it is for",
			Errors: []console.Refusal{{Of: ErrNoRefund, Kind: console.Absent, Code: "refund_unknown", Detail: "Nobody has asked for a refund of this payment."}},
		}, func(ctx context.Context, _ audit.Author, in RefundOf) (Refund, error) {
			return FindRefund(ctx, from, in.Tenant, in.Payment)
		}),
	}
}
