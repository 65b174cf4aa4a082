package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// program is where the command line is, which the first case that needs it builds.
var program = sync.OnceValues(func() (string, error) {
	var err error
	if programFolder, err = os.MkdirTemp("", "billhook-terminal-"); err != nil {
		return "", err
	}
	binary := filepath.Join(programFolder, "billhook")
	said, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "billhook/cmd/billhook").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build billhook: %w: %s", err, said)
	}
	return binary, nil
})

var programFolder string

// removeProgram removes what program has built.
func removeProgram() error { return os.RemoveAll(programFolder) }

// billhook runs a command and returns what it has said. It knows no other variable than who asks.
func billhook(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	binary, err := program()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), binary, arguments...)
	command.Env = []string{"OPS_OPERATOR=ada"}
	said, err := command.CombinedOutput()
	return string(said), err
}

// terminal runs a command that asks a worker, and returns what it has said.
func terminal(t *testing.T, workerURL string, arguments ...string) string {
	t.Helper()
	said, err := billhook(t, append(arguments, "--server", workerURL)...)
	require.NoError(t, err, said)
	return said
}

// booksRead: an invoice is posted, sealed and reverted from a terminal; an entry that is invented in the store, and one
// that is changed, are named.
func booksRead(t *testing.T, s *stack) {
	asked := func(arguments ...string) string {
		t.Helper()
		return terminal(t, s.workerURL, append([]string{"ledger"}, arguments...)...)
	}
	// The tenant's books are this case's own, and no other case's.
	tenant, event := "books-"+uuid.NewString(), "invoice-"+uuid.NewString()
	s.announced(t, tenant, event, "billing.invoice.paid", `"invoice_id":"i-1","amount":"119.00","currency":"EUR","tax_amount":"19.00"`)
	s.until(t, event, "processed")
	_, err := s.task(t.Context(), "seal-journal")
	require.NoError(t, err)

	id := ledger.EntryID(tenant, event)
	require.Contains(t, asked("verify", "--tenant", tenant), "1 seals, 1 sealed entries and 0 unsealed ones of 1 tenants: 0 findings.")
	require.Contains(t, asked("revert", event, "--tenant", tenant, "--why", "a typo", "--yes"), ledger.ReversalID(id))
	refused, err := billhook(t, "ledger", "revert", event, "--tenant", tenant, "--why", "a typo", "--yes", "--server", s.workerURL)
	require.Error(t, err)
	require.Contains(t, refused, "reverted already")

	// What no event and no person has made is not sealed, and is named.
	doc, err := s.store.Get(t.Context(), ledger.Key(id))
	require.NoError(t, err)
	of, err := ledger.Read(doc)
	require.NoError(t, err)
	of.EventID = "invented-" + event
	invented, err := ledger.Post(of)
	require.NoError(t, err)
	_, err = s.store.Commit(t.Context(), invented)
	require.NoError(t, err)
	_, err = s.task(t.Context(), "seal-journal")
	require.NoError(t, err)
	require.Zero(t, s.bookEntry(t, invented[0].Key.ID).Seal)
	found, err := billhook(t, "ledger", "verify", "--tenant", tenant, "--server", s.workerURL)
	require.Error(t, err)
	require.Contains(t, found, "unfounded: "+invented[0].Key.String())

	doc.Fields["rule"] = "another.rule"
	_, err = s.store.Commit(t.Context(), []store.Write{store.Set(doc.Key, doc.Fields)})
	require.NoError(t, err)
	found, err = billhook(t, "ledger", "verify", "--tenant", tenant, "--server", s.workerURL)
	require.Error(t, err)
	require.Contains(t, found, "changed: entries/"+id)
}
