package pages

import (
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
)

func (p *Pages) statusRoutes(r chi.Router) {
	p.page(r, "/audit", "audit.html", p.audit)
	p.page(r, "/catalog", "catalog.html", loads[ops.Declared](at("/v1/ops/catalog")))
	p.page(r, "/catalog/queues/{id}", "catalog_queue.html", loads[ops.QueueDeclaration](named("/v1/ops/catalog/queues/%s", "id")))
	p.page(r, "/catalog/contracts/{id}", "catalog_contract.html", loads[ops.ContractDeclaration](named("/v1/ops/catalog/contracts/%s", "id")))
	p.page(r, "/status", "status.html", loads[ops.Status](at("/v1/ops/status")))
}

var subjects = map[string]string{
	pause.Kind: "/ops/queues/%s", customers.AuditKind: "/ops/customers/%s", products.Kind: "/ops/products/%s", orders.StockKind: "/ops/stock/%s",
	endpoints.Kind: "/ops/endpoints/%s", journal.Kind: "/ops/journal/periods/%s", journal.KindEntry: "/ops/journal/entries/%s",
	deadletter.AuditKind: "/ops/operations/%s",
}

type changedPage struct {
	Items []changedItem
	Next  string
	// Kinds are those to choose from.
	Kinds []string
}

// changedItem is an entry, with the page of its subject; empty: there is none.
type changedItem struct {
	audit.Entry

	Page string
}

// auditKinds are the kinds of changes, as the audit has them.
var auditKinds = []string{"customer", "endpoint", "entry", "operation", "payload", "period", "product", "queue", "stock"}

func (p *Pages) audit(v *visit) (any, error) {
	shown := changedPage{Kinds: auditKinds}
	path := with("/v1/ops/audit", append(v.filters("kind", "subject", "who", "since", "until", "page"), "limit", rows)...)
	var list ops.List[audit.Entry]
	if err := v.get(path, &list); err != nil {
		return shown, v.refused(err)
	}
	shown.Next = list.Next
	for _, e := range list.Items {
		item := changedItem{Entry: e}
		if page := subjects[e.Kind]; page != "" {
			item.Page = with(href(page, e.Subject), "tenant", e.Tenant)
		}
		shown.Items = append(shown.Items, item)
	}
	return shown, nil
}

// pretty is JSON over several lines; empty: there is none.
func pretty(value jsontext.Value) string {
	if len(value) == 0 || string(value) == "null" || value.Indent(jsontext.WithIndent("  ")) != nil {
		return ""
	}
	return string(value)
}

func agreed(is ops.Agreement) string {
	if is == ops.Same {
		return "ok"
	}
	return strings.ToLower(string(is))
}
