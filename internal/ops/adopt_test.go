package ops_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ledger"
	"billhook/internal/ledger/ledgertest"
)

func TestEntriesAreAdoptedInPages(t *testing.T) {
	t.Parallel()
	r := open(t)
	const path = "/v1/ops/journal/adopt"
	for _, order := range []string{"o1", "o2", "o3"} {
		writes, err := ledger.Credit(ledger.Move{
			Order: order, EventID: "e1", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: 100, Currency: ledger.Points, CreatedAt: at,
		})
		require.NoError(t, err)
		r.commit(t, ledgertest.Former(writes[0]), writes[1])
	}
	var done ledger.Adopted
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPost, path, `{"limit":2}`, &done))
	require.NotEmpty(t, done.Next)
	require.Equal(t, ledger.Adopted{Looked: 2, Adopted: 2, Broken: []string{}, Next: done.Next}, done)
	next := `{"after":"` + done.Next + `"}`
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPost, path, next, &done))
	require.Equal(t, ledger.Adopted{Looked: 1, Adopted: 1, Broken: []string{}}, done)
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPost, path, `{}`, &done))
	require.Equal(t, ledger.Adopted{Looked: 3, Broken: []string{}}, done)
	for body, code := range map[string]int{`{"limit":0}`: 400, `{"limit":501}`: 400, `{"page":"x"}`: 400, ``: 400, `{"after":"a/b"}`: 400} {
		require.Equal(t, code, r.change(t, http.MethodPost, path, body, nil), body)
	}
}
