package endpoints

import (
	"context"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
)

// ListEndpoints asks for all endpoints, those of a state, or those of a tenant.
type ListEndpoints struct {
	State  string `json:"-" query:"state" validate:"omitempty,oneof=disabled failing" help:"only endpoints in this state: disabled or failing"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"only those of this tenant"`
	console.Page
}

// EndpointOf asks for an endpoint.
type EndpointOf struct {
	ID string `json:"-" path:"id" validate:"required" help:"endpoint"`
}

// ChangeEndpoint is a change of one endpoint.
type ChangeEndpoint struct {
	EndpointOf
	console.Edit
}

// AddEndpoint registers an endpoint.
type AddEndpoint struct {
	New
	console.Change
}

// Operations are what people do with endpoints.
func (ed *Editor) Operations() []console.Operation {
	// change is a row about one endpoint whose function takes who and why.
	change := func(path, verb, summary, help string) console.Row {
		return console.Row{Name: "endpoints " + verb, Path: path, Summary: summary, Help: help, Needs: console.Reason, Before: "endpoints show", Errors: failures}
	}
	return []console.Operation{
		console.New(console.Row{
			Name: "endpoints ls", Path: "GET /v1/ops/endpoints", Summary: "List endpoints, newest first", Errors: failures,
			Empty: "No endpoint is in this list. A third party gets events once its address is registered: endpoints add.",
		}, func(ctx context.Context, _ audit.Author, in ListEndpoints) (console.List[Endpoint], error) {
			if in.State != "" && in.Tenant != "" {
				return console.List[Endpoint]{}, console.Refuse(console.Malformed, "parameter_invalid", "Give a state or a tenant, not both.")
			}
			return console.Listed(ed.List(ctx, Choice{Tenant: in.Tenant, Disabled: in.State == "disabled", Failing: in.State == "failing"}, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "endpoints show", Path: "GET /v1/ops/endpoints/{id}", Summary: "Show an endpoint, and since when its deliveries fail",
			Beside: []string{"endpoints deliveries", "endpoints history"}, Errors: failures,
		}, func(ctx context.Context, _ audit.Author, in EndpointOf) (Endpoint, error) { return ed.Get(ctx, in.ID) }),
		console.New(console.Row{
			Name: "endpoints deliveries", Path: "GET /v1/ops/endpoints/{id}/deliveries", Errors: failures,
			Summary: "Show the newest deliveries to an endpoint: how each ended, how many succeeded and how long they took",
			Empty:   "No event was to be delivered to it yet. A producer sends webhook_delivery with its id.",
		}, ed.deliveries),
		console.New(console.Row{
			Name: "endpoints add", Path: "POST /v1/ops/endpoints", Summary: "Register an endpoint, and show its secret once", Needs: console.Reason,
			Help: "It gets events from now on.", Created: true, Once: true, Errors: failures,
		}, func(ctx context.Context, by audit.Author, in AddEndpoint) (Secret, error) {
			return ed.Add(ctx, in.New, in.By(by))
		}),
		changing(secret(change("POST /v1/ops/endpoints/{id}/rotate", "rotate", "Give an endpoint a new secret, and show it once",
			"The secret that it has signs beside the new one for a time; one from before an earlier rotation ends now.")), ed.Rotate),
		changing(change("POST /v1/ops/endpoints/{id}/enable", "enable", "Resume deliveries to an endpoint", "What it has missed is not sent."), ed.Enable),
		changing(change("POST /v1/ops/endpoints/{id}/disable", "disable", "Stop deliveries to an endpoint",
			"Events for it are done without a request, and are not sent later."), ed.Disable),
		changing(change("DELETE /v1/ops/endpoints/{id}", "rm", "Delete an endpoint and its secrets", "Events that name it are done without a request."), ed.Remove),
		console.New(console.Row{
			Name: "endpoints test", Path: "POST /v1/ops/endpoints/{id}/test", Summary: "Send an endpoint a signed event of type endpoint.test",
			Help: "It is sent even if the endpoint is disabled. Nothing else changes.", Needs: console.Act, Before: "endpoints show", Once: true, Errors: failures,
		}, func(ctx context.Context, _ audit.Author, in EndpointOf) (Tested, error) { return ed.Test(ctx, in.ID) }),
		console.HistoryWithoutTenant("endpoints", Kind, ed.Store),
	}
}

func secret(row console.Row) console.Row { row.Once = true; return row }

// changing is the operation of a change that takes who and why.
func changing[T any](row console.Row, do func(ctx context.Context, id string, by audit.Change) (T, error)) console.Operation {
	return console.New(row, func(ctx context.Context, by audit.Author, in ChangeEndpoint) (T, error) {
		return do(ctx, in.ID, in.By(by))
	})
}

var failures = []console.Refusal{
	{Of: ErrUnknown, Kind: console.Absent, Code: "endpoint_unknown", Detail: "There is no endpoint of that id."},
	{Of: ErrExists, Kind: console.Conflict, Code: "endpoint_exists", Detail: "There is an endpoint of that id."},
}
