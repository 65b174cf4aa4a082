package pages

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
)

// searchRoutes adds the search, which the box on every page asks, and the pages that it alone leads to.
func (p *Pages) searchRoutes(r chi.Router) {
	p.page(r, "/search", "search.html", p.search)
	p.accountRoutes(r)
	p.orderRoutes(r)
	p.refundRoutes(r)
	p.journalRoutes(r)
}

// searchPage is what a search has found.
type searchPage struct {
	// Asked is false where the address has no id.
	Asked bool
	ops.Search
	Through []lookedThrough
}

// lookedThrough is all that was looked through for one kind.
type lookedThrough struct {
	Kind string
	By   []ops.Looked
}

func (p *Pages) search(v *visit) (any, error) {
	page := searchPage{Asked: v.query("q") != ""}
	if !page.Asked {
		return page, nil
	}
	if err := v.get(with("/v1/ops/search", "q", v.query("q"), "tenant", strings.TrimSpace(v.query("tenant"))), &page.Search); err != nil {
		return nil, err
	}
	for _, looked := range page.Looked {
		last := len(page.Through) - 1
		if last < 0 || page.Through[last].Kind != kindName(looked.Kind) {
			page.Through, last = append(page.Through, lookedThrough{Kind: kindName(looked.Kind)}), last+1
		}
		page.Through[last].By = append(page.Through[last].By, looked)
	}
	return page, nil
}

// kindName is a kind as people read it.
func kindName(kind ops.Kind) string { return strings.ReplaceAll(string(kind), "_", " ") }

// leads is the page of what was found.
func leads(found ops.Found) string {
	of := map[ops.Kind]string{
		ops.KindQueue: "/ops/queues/%s", ops.KindEvent: "/ops/events/%s", ops.KindDeadLetter: "/ops/dead-letters/%s", ops.KindOperation: "/ops/operations/%s",
		ops.KindOrder: "/ops/orders/%s", ops.KindRefund: "/ops/refunds/%s", ops.KindCustomer: "/ops/customers/%s", ops.KindAccount: "/ops/accounts/%s",
		ops.KindEntry: "/ops/journal/entries/%s", ops.KindSubscription: "/ops/subscriptions/%s", ops.KindProduct: "/ops/products/%s",
		ops.KindStock: "/ops/stock/%s", ops.KindEndpoint: "/ops/endpoints/%s",
	}[found.Kind]
	if of == "" {
		return ""
	}
	switch found.Kind {
	case ops.KindEvent:
		return with(href(of, found.ID), "queue", found.Queue, "tenant", found.Tenant)
	case ops.KindOrder, ops.KindRefund, ops.KindAccount, ops.KindEntry, ops.KindSubscription, ops.KindCustomer, ops.KindProduct, ops.KindStock:
		return with(href(of, found.ID), "tenant", found.Tenant)
	default:
		return href(of, found.ID)
	}
}
