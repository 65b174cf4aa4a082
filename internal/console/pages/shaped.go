package pages

import (
	"encoding/csv"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/search"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

func (p *Pages) search(v *visit) (any, error) {
	o := p.row("search")
	if v.query("q") == "" {
		return declaredView{Help: o.Help}, nil
	}
	view, err := p.detail(v, o)
	if found, _ := view.Answer.(search.Search); len(found.Items) == 1 {
		if shows, err := url.Parse(found.Items[0].Path); err == nil { // others have written the id in it
			return nil, elsewhere("/ops/" + strings.TrimPrefix(shows.String(), looks))
		}
	}
	return view, err
}

// event is the page of an event, and of the dead letter that it has become until somebody has dealt with that.
func (p *Pages) event(v *visit) (any, error) {
	view, err := p.detail(v, p.row("events show"))
	event, _ := view.Answer.(events.Event)
	for _, dead := range event.DeadLetters {
		if dead.State == deadletter.Open && err == nil {
			show := p.row("dlq show")
			view.Others = map[string]any{}
			view.Others[show.Name], err = p.API.Call(v.ctx, show, console.Input{Path: map[string]string{lastParam(show): dead.ID}})
		}
	}
	return view, err
}

// account is the page of an account of points. Of another one there is the statement.
func (p *Pages) account(v *visit) (any, error) {
	name := v.param("account")
	if control := ledger.Control(name); control == name || ledger.Account(name).OfOrder() {
		return nil, elsewhere(href("/ops/accounts/%s/statement", control) + "?" + v.request.URL.RawQuery)
	}
	return p.detail(v, p.row("accounts show"))
}

func (p *Pages) balancesCSV(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	trial, err := look[seal.TrialBalance](p, v, "journal balances")
	if err != nil {
		p.fail(v, err)
		return
	}
	rows := [][]string{{"tenant", "period", "account", "type", "currency", "opening", "debit", "credit", "closing"}}
	for _, b := range slices.Concat(trial.Balances, trial.Totals) {
		row := []string{trial.Tenant, trial.Period, b.Account, b.Type, b.Currency}
		for _, amount := range []int64{b.Opening, b.Debit, b.Credit, b.Closing} {
			row = append(row, money.Text(amount, b.Currency))
		}
		rows = append(rows, row)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="balances.csv"`)
	var file strings.Builder
	_ = csv.NewWriter(&file).WriteAll(rows)                    // a builder takes everything
	_, _ = io.WriteString(w, audit.EscapeLines(file.String())) // the client is gone
}
