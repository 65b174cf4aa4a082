package ops_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
)

// TestAUIDWithABarHasAnAccountAndIsAnOrderingKey as an identity provider's are.
func TestAUIDWithABarHasAnAccountAndIsAnOrderingKey(t *testing.T) {
	t.Parallel()
	r := open(t)
	account := ledger.UserPoints("auth0|5f7c8ec7c33c6c004bbafe82")
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: account, Amount: 1000, Currency: ledger.Points, CreatedAt: at,
	})
	require.NoError(t, err)
	r.commit(t, writes...)
	var got ops.Account
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:user:auth0%7C5f7c8ec7c33c6c004bbafe82", nil, &got).Code)
	require.Equal(t, string(account), got.Account)
	require.Equal(t, int64(1000), got.Balance)
	require.Len(t, got.Entries, 1)

	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue=orders&key=auth0%7C5f7c", nil, nil).Code)
	for _, bad := range []string{"ilse%40example.org", "%7Ca", "a%2Fb", "user%2012"} {
		answer := r.ask(t, "/v1/ops/dead-letters?queue=orders&key="+bad, nil, nil)
		require.Equal(t, http.StatusBadRequest, answer.Code, bad)
		require.Contains(t, answer.Body.String(), "key_invalid")
	}
}
