package pii

import (
	"net/netip"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pairs are an EUI-64, not an address.
var pairs = regexp.MustCompile(`^([0-9a-f]{2}:){7}[0-9a-f]{2}$`)

// TestAddressesAreReadAsTheStandardLibraryReadsThem compares both with net/netip.
func TestAddressesAreReadAsTheStandardLibraryReadsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		six := rapid.StringMatching(`([0-9a-f]{0,5}:){0,9}[0-9a-f]{0,5}|:?(:[0-9a-f]{1,4}){0,8}|([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}`).Draw(t, "IPv6")
		_, err := netip.ParseAddr(six)
		_, _, ok := isIPv6([]byte(six))
		require.Equal(t, err == nil && six != "::" && !pairs.MatchString(six), ok, six)

		four := rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,3}){2,4}|[12]?[0-9]{1,2}(\.[12]?[0-9]){3}`).Draw(t, "IPv4")
		_, err = netip.ParseAddr(four)
		require.Equal(t, err == nil, hasIPv4([]byte(four)), four)
	})
}
