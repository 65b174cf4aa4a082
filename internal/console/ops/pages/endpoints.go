package pages

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *Pages) endpointRoutes(r chi.Router) {
	p.page(r, "/endpoints", "endpoints.html", p.endpoints)
	p.outcome(r, "/new-endpoint", "endpoint_new.html", p.newEndpoint, p.addEndpoint) // /endpoints/new may be an endpoint's
	p.page(r, "/endpoints/{id}", "endpoint.html", p.endpoint)
	p.outcome(r, "/endpoints/{id}/rotate", "endpoint_rotate.html", p.endpointNow, p.rotateEndpoint)
	p.outcome(r, "/endpoints/{id}/test", "endpoint_test.html", p.endpointNow, p.testEndpoint)
	p.change(r, "/endpoints/{id}/enable", "endpoint_enable.html", p.endpointNow, p.changeEndpoint(http.MethodPost, "/enable"))
	p.change(r, "/endpoints/{id}/disable", "endpoint_disable.html", p.endpointNow, p.changeEndpoint(http.MethodPost, "/disable"))
	p.change(r, "/endpoints/{id}/remove", "endpoint_remove.html", p.endpointNow, p.removeEndpoint)
}

func (p *Pages) endpoints(v *visit) (any, error) {
	var list ops.List[endpoints.Endpoint]
	err := v.get(with("/v1/ops/endpoints", "state", v.query("state"), "tenant", v.query("tenant"), "limit", rows, "page", v.query("page")), &list)
	return list, err
}

// endpointNow is an endpoint, and what has just been done with it.
type endpointNow struct {
	endpoints.Endpoint
	Changes ops.List[audit.Entry]
	// Secret is a new one, which is shown this once; Tested is how a test has ended.
	Secret string
	Tested *endpoints.Tested
}

func (p *Pages) endpointNow(v *visit) (any, error) { return v.endpoint() }

func (v *visit) endpoint() (now endpointNow, err error) {
	err = v.get(href("/v1/ops/endpoints/%s", v.param("id")), &now.Endpoint)
	return now, err
}

func (p *Pages) endpoint(v *visit) (any, error) {
	now, err := v.endpoint()
	if err == nil {
		now.Changes, err = v.changes(href("/v1/ops/endpoints/%s/changes", v.param("id")))
	}
	return now, err
}

func (p *Pages) newEndpoint(*visit) (any, error) { return endpointNow{}, nil }

func (p *Pages) addEndpoint(v *visit) (any, error) {
	add := ops.AddEndpoint{
		New: endpoints.New{ID: strings.TrimSpace(v.form("id")), Tenant: strings.TrimSpace(v.form("tenant")), URL: strings.TrimSpace(v.form("url")),
			Events: strings.FieldsFunc(v.form("events"), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })},
		Change: endpoints.Change{Why: v.form("why")},
	}
	var added endpoints.Secret
	err := v.post("/v1/ops/endpoints", add, &added)
	return endpointNow{Endpoint: added.Endpoint, Secret: added.Secret}, err
}

func (p *Pages) rotateEndpoint(v *visit) (any, error) {
	var rotated endpoints.Secret
	err := v.post(href("/v1/ops/endpoints/%s/rotate", v.param("id")), endpoints.Change{Why: v.form("why")}, &rotated)
	return endpointNow{Endpoint: rotated.Endpoint, Secret: rotated.Secret}, err
}

func (p *Pages) testEndpoint(v *visit) (any, error) {
	var tested endpoints.Tested
	late, err := v.partly(http.MethodPost, href("/v1/ops/endpoints/%s/test", v.param("id")), nil, &tested)
	if err != nil {
		return nil, err
	}
	if late {
		tested = endpoints.Tested{Reason: "no_answer_yet", Milliseconds: v.part().Milliseconds()}
	}
	now, err := v.endpoint()
	now.Tested = &tested
	return now, err
}

// changeEndpoint makes a change whose outcome the endpoint's page shows.
func (p *Pages) changeEndpoint(method, rest string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		path := href("/v1/ops/endpoints/%s", v.param("id")) + rest
		return href("/ops/endpoints/%s", v.param("id")), v.send(method, path, endpoints.Change{Why: v.form("why")}, nil)
	}
}

func (p *Pages) removeEndpoint(v *visit) (string, error) {
	_, err := p.changeEndpoint(http.MethodDelete, "")(v)
	return "/ops/endpoints", err
}
