package ops

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/endpoints"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func (a *API) endpointRoutes(r chi.Router) {
	r.Get("/endpoints", answer(a, a.listEndpoints))
	r.Post("/endpoints", serve.Answer(http.StatusCreated, a.addEndpoint, a.refuse))
	r.Get("/endpoints/{id}", answer(a, func(r *http.Request) (endpoints.Endpoint, error) {
		return a.Endpoints.Get(r.Context(), param(r, "id"))
	}))
	r.Delete("/endpoints/{id}", answer(a, changeEndpoint(a, "removed", (*endpoints.Keeper).Remove)))
	r.Post("/endpoints/{id}/rotate", answer(a, changeEndpoint(a, "rotated", (*endpoints.Keeper).Rotate)))
	r.Post("/endpoints/{id}/enable", answer(a, changeEndpoint(a, "enabled", (*endpoints.Keeper).Enable)))
	r.Post("/endpoints/{id}/disable", answer(a, changeEndpoint(a, "disabled", (*endpoints.Keeper).Disable)))
	r.Post("/endpoints/{id}/test", answer(a, a.testEndpoint))
	r.Get("/endpoints/{id}/changes", a.changes(endpoints.Kind, store.MaxPage))
}

// listEndpoints answers all endpoints, those of a state, or those of a tenant.
func (a *API) listEndpoints(r *http.Request) (list List[endpoints.Endpoint], err error) {
	params := read(r, "state", "tenant", "limit", "page")
	of := endpoints.Choice{Tenant: params.id("tenant")}
	switch state := params.values.Get("state"); state {
	case "":
	case "disabled", "failing":
		of.Disabled, of.Failing = state == "disabled", state == "failing"
		if of.Tenant != "" {
			params.refuse("parameter_invalid", "Give a state or a tenant, not both.")
		}
	default:
		params.refuse("state_unknown", "The parameter state is disabled or failing.")
	}
	limit, at := params.limit(most, store.MaxPage), params.page("endpoints", Place{})
	if err := params.err(); err != nil {
		return list, err
	}
	items, next, err := a.Endpoints.List(r.Context(), of, at.Cursor, limit)
	return listOf(items, params.next("endpoints", at, next)), err
}

// AddEndpoint is an endpoint to register, and why.
type AddEndpoint struct {
	endpoints.New
	endpoints.Change
}

func (a *API) addEndpoint(r *http.Request) (endpoints.Secret, error) {
	var add AddEndpoint
	if err := readChange(r, &add, `Send JSON: {"url": "https://...", "events": ["<patterns of event types>"], "tenant", "id", "why": "<the reason>"}.`); err != nil {
		return endpoints.Secret{}, err
	}
	add.Who = Who(r.Context())
	added, err := a.Endpoints.Add(r.Context(), add.New, add.Change)
	a.endpointChanged(r, "added", added.ID, err)
	return added, err
}

// changeEndpoint makes one of the changes of the keeper.
func changeEndpoint[T any](a *API, done string, change func(*endpoints.Keeper, context.Context, string, endpoints.Change) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (T, error) {
		var by endpoints.Change
		if err := readChange(r, &by, `Send JSON: {"why": "<the reason>"}.`); err != nil {
			var none T
			return none, err
		}
		by.Who = Who(r.Context())
		id := param(r, "id")
		changed, err := change(a.Endpoints, r.Context(), id, by)
		a.endpointChanged(r, done, id, err)
		return changed, err
	}
}

func (a *API) testEndpoint(r *http.Request) (endpoints.Tested, error) {
	tested, err := a.Endpoints.Test(r.Context(), param(r, "id"))
	a.endpointChanged(r, "tested", tested.ID, err)
	return tested, err
}

// endpointChanged logs what was done to an endpoint.
func (a *API) endpointChanged(r *http.Request, done, id string, err error) {
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "endpoint changed", slog.String("how", done), slog.String("endpoint", id), slog.String("who", Who(r.Context())))
	}
}
