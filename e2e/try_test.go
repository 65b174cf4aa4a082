package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// count is how many documents a collection has.
func (s *stack) count(t *testing.T, collection string, equal map[string]any) (n int) {
	t.Helper()
	for after := ""; ; {
		page, err := s.store.Query(t.Context(), store.Query{Collection: collection, Equal: equal, After: after, Limit: store.MaxPage})
		require.NoError(t, err)
		n += len(page.Documents)
		if after = page.Next; after == "" {
			return n
		}
	}
}

// changedJournal returns a folder with the shipped catalog, whose journal has another text.
func changedJournal(t *testing.T, old, changed string) (folder string) {
	t.Helper()
	folder = changedCatalog(t)
	path := filepath.Join(folder, "journal.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), old))
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, changed, 1)), 0o600))
	return folder
}

// triedWithAnotherCatalog: an invoice whose tax is more than its amount is a dead letter. Before the
// rule is changed, a person looks at what would become of it, and of a good one.
func triedWithAnotherCatalog(t *testing.T, s *stack) {
	tenant, bad := "try-"+uuid.NewString(), "invoice-"+uuid.NewString()
	const invoice = `"invoice_id":"i-1","amount":"10.00","currency":"EUR","tax_amount":"%s"`
	s.announced(t, tenant, bad, "billing.invoice.paid", fmt.Sprintf(invoice, "11.00"))
	letter := s.letter(t, ingestion, bad)

	// The new rule books the whole amount as sales, and no tax.
	changed := changedJournal(t, `      - { credit: subscription-revenue, amount: [amount, -tax_amount], currency: currency }
      - { credit: tax-payable, amount: tax_amount, currency: currency }
  ecommerce`, `      - { credit: sales-revenue, amount: amount, currency: currency }
  ecommerce`)
	good, file := "invoice-"+uuid.NewString(), filepath.Join(t.TempDir(), "invoice.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		`{"id":%q,"type":"billing.invoice.paid","timestamp":"2026-03-01T12:00:00Z","version":1,"data":{%s}}`, good, fmt.Sprintf(invoice, "1.90")), 0o600))

	collections := []string{
		ledger.Entries, dedupe.Collection, deadletter.Collection, audit.Collection, journal.PeriodsCollection, seal.Seals, seal.Heads, seal.Leaves,
	}
	counted := func() map[string]int {
		counts := map[string]int{}
		for _, collection := range collections {
			counts[collection] = s.count(t, collection, nil)
		}
		// What waits of earlier cases comes and goes meanwhile.
		for _, id := range []string{bad, good} {
			for _, collection := range []string{lane.Outbox.Entries(), lane.Delayed.Entries()} {
				counts[collection] += s.count(t, collection, map[string]any{"event_id": id})
			}
		}
		return counts
	}
	before := counted()

	lines := func(arguments ...string) string {
		t.Helper()
		var trial dryrun.Trial
		require.NoError(t, json.Unmarshal([]byte(terminal(t, s.workerURL, append([]string{"events", "try", "--json"}, arguments...)...)), &trial))
		require.Equal(t, journal.Posted, trial.Result)
		for _, w := range trial.Writes {
			if strings.HasPrefix(w.Key, ledger.Entries+"/") {
				return string(w.After["lines"])
			}
		}
		require.Fail(t, "no entry would be written")
		return ""
	}
	running := lines("-f", file, "--queue", ingestion)
	other := lines("-f", file, "--queue", ingestion, "--catalog", changed)
	require.JSONEq(t, `[{"account":"cash","currency":"EUR","debit":1000,"credit":0},{"account":"subscription-revenue","currency":"EUR","debit":0,"credit":810},{"account":"tax-payable","currency":"EUR","debit":0,"credit":190}]`, running)
	require.JSONEq(t, `[{"account":"cash","currency":"EUR","debit":1000,"credit":0},{"account":"sales-revenue","currency":"EUR","debit":0,"credit":1000}]`, other)
	require.Contains(t, lines(bad, "--tenant", tenant, "--catalog", changed), "sales-revenue")

	// A catalog that no worker would take is refused before anything is tried.
	unbalanced := changedJournal(t, "amount: tax_amount, currency: currency }\n  ecommerce", "amount: amount, currency: currency }\n  ecommerce")
	said, err := billhook(t, "events", "try", bad, "--tenant", tenant, "--catalog", unbalanced, "--server", s.workerURL)
	require.Error(t, err)
	require.Contains(t, said, "billing.invoice.paid")

	require.Equal(t, before, counted(), "nothing was written")
	for _, id := range []string{bad, good} {
		for _, of := range []string{tenant, dedupe.DefaultTenant} {
			_, err := s.store.Get(t.Context(), ledger.Key(ledger.EntryID(of, id)))
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	require.Equal(t, letter, s.letter(t, ingestion, bad))
}
