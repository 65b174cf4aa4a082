package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"billhook/internal/dedupe"
	"billhook/internal/ledger"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// maxAdopt is how many documents one request looks at: those that one commit can complete.
const maxAdopt = store.MaxWrites

// Adopt asks for a page of documents to be adopted: behind the id After, at most Limit.
type Adopt struct {
	After string `json:"after"`
	Limit int    `json:"limit"`
}

// adopts are what has to be adopted once after an upgrade, by the words of the log.
var adopts = map[string]func(ctx context.Context, s store.Store, after string, limit int) (store.Adopted, error){
	"entries": ledger.Adopt, "events": dedupe.Adopt,
}

// adopt completes a page of what the release before wrote. It changes nothing that a person could
// read of it, so the log says who asked for it, and the audit does not.
func (a *API) adopt(what string) http.HandlerFunc {
	return answer(a, func(r *http.Request) (store.Adopted, error) {
		ask := Adopt{Limit: maxAdopt}
		if err := readJSON(r, &ask, `Send JSON: {"after": "<next of the answer before>", "limit": <1 to 500>}; {} is the first page.`); err != nil {
			return store.Adopted{}, err
		}
		if ask.Limit < 1 || ask.Limit > maxAdopt {
			return store.Adopted{}, serve.Refuse(http.StatusBadRequest, "limit_invalid", "A page has 1 to 500 documents.")
		}
		done, err := adopts[what](r.Context(), a.Store, ask.After, ask.Limit)
		if errors.Is(err, store.ErrStale) {
			return store.Adopted{}, serve.Refuse(http.StatusConflict, "busy", "Others are changing these "+what+"; ask again.")
		}
		if err == nil && done.Adopted > 0 {
			a.Log.LogAttrs(r.Context(), slog.LevelInfo, "adopted", slog.String("what", what), slog.Int("adopted", done.Adopted), slog.Int("broken", len(done.Broken)),
				slog.String("who", Who(r.Context())))
		}
		return done, err
	})
}
