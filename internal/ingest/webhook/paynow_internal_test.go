package webhook

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// What is read of PayNow's body before it is mapped: nothing of it may be free text.
func TestEveryPathThatIsReadOfPayNowsBodyIsBoundedByARule(t *testing.T) {
	t.Parallel()
	declared, err := catalog.Load("")
	require.NoError(t, err)
	p, err := newPayNow(declared.Sources["paynow"], time.Now)
	require.NoError(t, err)
	require.Len(t, p.bodies, len(paynowTypes))
	for eventType, body := range p.bodies {
		read := body.Rules()
		require.Contains(t, read, "body.checkout.metadata.uid", eventType)
		maps.Copy(read, p.head.Rules())
		for path, rule := range read {
			for _, value := range []string{
				"Ilse Brandvold", "ilse@example.org", "Storgata 7, Bodo", "+47 73 59 00 00", "4111 1111 1111 1111", "198.51.100.23/24", "NO93 8601 1117 947", " ",
			} {
				require.False(t, rule.Valid(value), "%s: %s (%s) allows %q", eventType, path, rule.Name(), value)
			}
		}
	}
}
