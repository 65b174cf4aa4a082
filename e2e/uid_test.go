package e2e_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
)

// identityProvider: a uid with a vertical bar is an ordering key and part of an account's name
// like any other.
func identityProvider(t *testing.T, s *stack) {
	o := s.newOrder()
	o.UID = "auth0|5f7c8ec7c33c6c00" + o.EventID[10:]
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	var story ops.Account
	s.ask(t, http.MethodGet, "/v1/ops/accounts/"+url.PathEscape(string(ledger.UserPoints(o.UID))), nil, &story)
	require.Equal(t, int64(2000), story.Balance)
	require.Len(t, story.Entries, 1)
}
