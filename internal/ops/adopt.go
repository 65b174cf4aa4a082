package ops

import (
	"errors"
	"log/slog"
	"net/http"

	"billhook/internal/ledger"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// maxAdopt is how many entries one request looks at: those that one commit can complete.
const maxAdopt = store.MaxWrites

// Adopt asks for a page of entries to be adopted: behind the entry After, at most Limit.
type Adopt struct {
	After string `json:"after"`
	Limit int    `json:"limit"`
}

// adopt completes a page of the entries that a release before wrote. It changes nothing that a
// person could read of them, so the log says who asked for it, and the audit does not.
func (a *API) adopt(r *http.Request) (ledger.Adopted, error) {
	ask := Adopt{Limit: maxAdopt}
	if err := readJSON(r, &ask, `Send JSON: {"after": "<next of the answer before>", "limit": <1 to 500>}; {} is the first page.`); err != nil {
		return ledger.Adopted{}, err
	}
	if ask.Limit < 1 || ask.Limit > maxAdopt {
		return ledger.Adopted{}, serve.Refuse(http.StatusBadRequest, "limit_invalid", "A page has 1 to 500 entries.")
	}
	done, err := ledger.Adopt(r.Context(), a.Store, ask.After, ask.Limit)
	if errors.Is(err, store.ErrStale) {
		return ledger.Adopted{}, serve.Refuse(http.StatusConflict, "busy", "Others are changing these entries, an adoption or the sealing; ask again.")
	}
	if err == nil && done.Adopted > 0 {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "entries adopted", slog.Int("entries", done.Adopted), slog.Int("broken", len(done.Broken)),
			slog.String("who", Who(r.Context())))
	}
	return done, err
}
