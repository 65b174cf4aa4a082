package auth_test

import (
	"crypto/rsa"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/auth"
)

func TestAnAccountIsIdentifiedForTheAddressThatItsTokenIsFor(t *testing.T) {
	t.Parallel()
	const queue = "https://hooks.example/queues/a/messages"
	keys := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	accounts, err := auth.NewAccounts(auth.AccountsConfig{KeysURL: keys.URL, Client: keys.Client(), Now: (&clock{}).Now})
	require.NoError(t, err)
	token := func(with jwt.MapClaims) string {
		return "Bearer " + signed(t, changed(personClaims(jwt.MapClaims{"aud": queue}), with))
	}
	for name, test := range map[string]struct{ audience, authorization, email, invalid string }{
		"for this address":       {queue, token(nil), operator, ""},
		"for several addresses":  {queue, token(jwt.MapClaims{"aud": []string{"https://hooks.example/queues/b/messages", queue}}), operator, ""},
		"for another address":    {"https://hooks.example/queues/b/messages", token(nil), "", "audience"},
		"for its beginning":      {"https://hooks.example", token(nil), "", "audience"},
		"for no address":         {"", token(nil), "", "the audience is empty"},
		"too late":               {queue, token(jwt.MapClaims{"exp": start.Add(-time.Hour).Unix()}), "", "expired"},
		"of another issuer":      {queue, token(jwt.MapClaims{"iss": "https://issuer.example"}), "", "issuer"},
		"of an unproven address": {queue, token(jwt.MapClaims{"email_verified": false}), "", "email_not_verified"},
		"of no address":          {queue, token(jwt.MapClaims{"email": "nobody"}), "", "email"},
		"nothing":                {queue, "", "", "no bearer token"},
	} {
		email, invalid, err := accounts.Account(t.Context(), test.audience, test.authorization)
		require.NoError(t, err, name)
		require.Equal(t, [2]string{test.email, test.invalid}, [2]string{email, invalid}, name)
	}
	gone := serveKeys(t, publish(nil))
	accounts, err = auth.NewAccounts(auth.AccountsConfig{KeysURL: gone.URL, Client: gone.Client(), Now: (&clock{}).Now})
	require.NoError(t, err)
	gone.Close()
	_, _, err = accounts.Account(t.Context(), queue, token(nil))
	require.ErrorIs(t, err, auth.ErrKeysUnavailable)
	_, err = auth.NewAccounts(auth.AccountsConfig{KeysURL: "http://keys.example"})
	require.Error(t, err)
}
