package signature_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/signature"
)

// The page for who registers an endpoint shows a delivery: a receiver's first test is to verify it.
func TestTheDeliveryOnThePageOfEndpointsIsSignedWithItsSecret(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/endpoints.md")
	require.NoError(t, err)
	find := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindSubmatch(page)
		require.Len(t, found, 2, pattern)
		return string(found[1])
	}
	headers := map[string]string{
		"Webhook-Id": find(`webhook-id: (\S+)`), "Webhook-Timestamp": find(`webhook-timestamp: (\S+)`),
		"Webhook-Signature": find(`webhook-signature: (\S+)`),
	}
	at := func() time.Time { return time.Unix(1772452800, 0) }
	verifier, err := signature.NewVerifier(signature.Standard, []string{find("`(whsec_[^`]+)`")}, time.Minute, at)
	require.NoError(t, err)
	claim, err := verifier.Headers(func(name string) []string { return []string{headers[name]} })
	require.NoError(t, err)
	body := find("\n(\\{\"type\":\"invoice.paid\".*\\})\n")
	require.NoError(t, claim.Verify([]byte(body)))
	require.Error(t, claim.Verify([]byte(body+" ")))
}
