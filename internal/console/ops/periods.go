package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// periodRoutes adds the routes by which people close and reopen the months of the books, and revert
// entries.
func (a *API) periodRoutes(r chi.Router) {
	r.Get("/journal/periods", answer(a, a.listPeriods))
	r.Get("/journal/periods/{period}", answer(a, a.showPeriod))
	r.Post("/journal/periods/{period}/close", answer(a, a.changePeriod("closed", (*journal.Periods).Close)))
	r.Post("/journal/periods/{period}/reopen", answer(a, a.changePeriod("reopened", (*journal.Periods).Reopen)))
	r.Post("/journal/entries/{entry}/revert", answer(a, a.revertEntry))
}

// periodRungs are how the API answers errors about periods and reversals.
var periodRungs = []serve.Rung{
	{Of: journal.ErrInvalid, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
	{Of: journal.ErrNotOver, As: serve.Refuse(http.StatusConflict, "period_not_over", "The month is not over yet, in UTC; it can be closed when it is.")},
	{Of: journal.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "entry_unknown", "The tenant's journal has no entry of that id, nor one that an event of that id has made. Points are taken back by refunds.")},
	{Of: journal.ErrReversal, As: serve.Refuse(http.StatusConflict, "entry_is_reversal", "The entry is a reversal, which nobody reverts; have the event sent again under another id.")},
	{Of: journal.ErrBroken, As: errBooks},
}

// Period is a month of a tenant's books as it stands.
type Period struct {
	journal.Period
	// Late are the ids of entries that were posted in it after it was closed, at most 100.
	Late []string `json:"late"`
}

// listPeriods answers the months of a tenant that were ever closed, the oldest first.
func (a *API) listPeriods(r *http.Request) (list List[journal.Period], err error) {
	params := read(r, "tenant", "limit", "page")
	tenant, limit, at := params.tenant(), params.limit(most, most), params.page("periods", Place{})
	if err = params.err(); err != nil {
		return list, err
	}
	found, next, err := a.Periods.List(r.Context(), tenant, at.Cursor, limit)
	return listOf(found, params.next("periods", at, next)), err
}

func (a *API) showPeriod(r *http.Request) (shown Period, err error) {
	params := read(r, "tenant")
	tenant := params.tenant()
	if err = params.err(); err != nil {
		return shown, err
	}
	if shown.Period, err = a.Periods.Get(r.Context(), tenant, param(r, "period")); err != nil {
		return shown, err
	}
	shown.Late, err = a.Late(r.Context(), shown.Period)
	return shown, err
}

// Late finds the entries that were posted in a period from the moment on from which it is closed,
// at most 100 and a page. It reads the seals behind that moment, back from the last one that has
// entries of the period, and what is not sealed.
func (a Reads) Late(ctx context.Context, p journal.Period) ([]string, error) {
	late := []string{}
	if p.ClosesAt.IsZero() || a.Now().Before(p.ClosesAt) {
		return late, nil
	}
	find := func(equal map[string]any) error {
		query := store.Query{Collection: ledger.Entries, Equal: equal, Limit: store.MaxPage}
		for {
			page, err := a.Store.Query(ctx, query)
			if err != nil {
				return err
			}
			for _, doc := range page.Documents {
				entry, err := ledger.Read(doc)
				if err != nil {
					return err
				}
				if entry.Tenant == p.Tenant && entry.Period == p.Period && !entry.PostedAt.Before(p.ClosesAt) {
					late = append(late, entry.ID)
				}
			}
			if query.After = page.Next; query.After.IsZero() || len(late) >= most {
				return nil
			}
		}
	}
	if err := find(map[string]any{ledger.FieldUnsealed: p.Tenant}); err != nil {
		return nil, err
	}
	newest, _, err := seal.List(ctx, a.Store, p.Tenant, 0, 1)
	if err != nil || len(newest) == 0 {
		return late, err
	}
	for before := newest[0].Periods[p.Period] + 1; before > 1 && len(late) < most; {
		seals, next, err := seal.List(ctx, a.Store, p.Tenant, before, sealsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, s := range seals {
			if s.SealedAt.Before(p.ClosesAt.Add(-clocksDiffer)) || len(late) >= most {
				return late, nil
			}
			if _, touched := s.Totals[p.Period]; touched {
				if err := find(map[string]any{"tenant": p.Tenant, "seal": s.Number}); err != nil {
					return nil, err
				}
			}
		}
		before = next
	}
	return late, nil
}

const (
	// sealsAtOnce is how many seals are read together.
	sealsAtOnce = 10
	// clocksDiffer is how far the clock that sealed an entry may be behind the one that posted it.
	clocksDiffer = time.Minute
)

// changePeriod makes one of the changes of periods.
func (a *API) changePeriod(done string, change func(*journal.Periods, context.Context, string, string, journal.Change) (journal.Period, error)) func(*http.Request) (journal.Period, error) {
	return func(r *http.Request) (period journal.Period, err error) {
		tenant, by, err := bookChange(r)
		if err != nil {
			return period, err
		}
		if period, err = change(a.Periods, r.Context(), tenant, param(r, "period"), by); err == nil {
			a.Log.LogAttrs(r.Context(), slog.LevelInfo, "period changed", slog.String("how", done), slog.String("tenant", tenant),
				slog.String("period", period.Period), slog.String("state", string(period.State)), slog.String("who", by.Who.String()))
		}
		return period, err
	}
}

func (a *API) revertEntry(r *http.Request) (ledger.Entry, error) {
	tenant, by, err := bookChange(r)
	if err != nil {
		return ledger.Entry{}, err
	}
	reversal, err := a.Reverter.Revert(r.Context(), tenant, param(r, "entry"), by)
	switch {
	case errors.Is(err, journal.ErrReverted):
		return ledger.Entry{}, serve.Refuse(http.StatusConflict, "entry_reverted", "The entry is reverted already, by "+reversal.ID+".")
	case err == nil:
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "entry reverted", slog.String("tenant", tenant), slog.String("entry", reversal.Reverts),
			slog.String("reversal", reversal.ID), slog.String("who", by.Who.String()))
	}
	return reversal, err
}

// bookChange reads whose books a request changes, who wants it, and why.
func bookChange(r *http.Request) (tenant string, by journal.Change, err error) {
	params := read(r, "tenant")
	tenant = params.tenant()
	if err = params.err(); err == nil {
		err = readChange(r, &by, `Send JSON: {"why": "<the reason>"}.`)
	}
	by.Who = Author(r.Context())
	return tenant, by, err
}
