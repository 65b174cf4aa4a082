package delivery_test

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/retry"
)

func TestOnlyAnInternalTargetIsDialledAtAPrivateAddress(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	url := callee(t, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	declared := service
	declared.Internal = false
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "0x7f.1", "2130706433", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[::]", "[::127.0.0.1]"} {
		_, err = at(t, delivery.Config{Target: declared, BaseURL: "http://" + host + ":" + port}).Post(payment).Do(t.Context(), event())
		require.ErrorContains(t, err, "callee_unreachable", host)
		require.Equal(t, retry.Unavailable, retry.Decide(err).Class)
		if host == "127.0.0.1" || host == "localhost" {
			require.EqualError(t, err, "callee_unreachable: address not public", "after the name is resolved")
		}
	}
	require.False(t, asked.Load())
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "2001:4860:4860::8888": true, "::ffff:93.184.216.34": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false, "192.0.0.8": false, "192.0.2.1": false,
		"::1": false, "::": false, "fd00::1": false, "fd20:ce::254": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:100.64.0.1": false, "::ffff:0:127.0.0.1": false, "::127.0.0.1": false, "::a9fe:a9fe": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::a9fe:a9fe": false, "2002:7f00:1::": false, "2001:0:7f00:1::": false, "2001:db8::1": false,
		"3fff::1": false, "100::1": false, "5f00::1": false, "2606:2800:220:1::1%eth0": false,
	} {
		require.Equal(t, want, delivery.Public(netip.MustParseAddr(address)), address)
	}
	require.False(t, delivery.Public(netip.Addr{}))
}

func TestWhatIsMissingForATargetIsToldAtOnceAndWithoutItsSecret(t *testing.T) {
	t.Parallel()
	of := func(name string) catalog.Target {
		upper := strings.ToUpper(name)
		return catalog.Target{Name: name, URLVariable: upper + "_URL", SecretVariable: upper + "_SECRET", Scheme: catalog.SchemeGeneric, Timeouts: catalog.Timeouts{Connect: 1, Total: 1}}
	}
	c := &catalog.Catalog{
		Targets: map[string]catalog.Target{"here": of("here"), "lost": of("lost"), "weak": of("weak"), "idle": of("idle")},
		Queues: []catalog.Queue{{ID: "q", Enabled: true, Pool: "p", Handlers: map[string]catalog.Handler{
			"a": {Name: "a", Post: catalog.Post{Target: "here"}}, "b": {Name: "b", Post: catalog.Post{Target: "lost"}}, "c": {Name: "c", Post: catalog.Post{Target: "weak"}},
		}}, {ID: "off", Handlers: map[string]catalog.Handler{"d": {Name: "d", Post: catalog.Post{Target: "idle"}}}}},
	}
	place := func(t catalog.Target) (string, []string) {
		return map[string]string{"here": "http://here.example", "weak": "http://weak.example"}[t.Name],
			map[string][]string{"here": {secret, second}, "lost": {secret}, "weak": {"hush"}}[t.Name]
	}
	_, err := delivery.Open(c, "p", place, clock)
	require.ErrorContains(t, err, "LOST_URL and LOST_SECRET: required to post to lost")
	require.ErrorContains(t, err, "WEAK_URL and WEAK_SECRET: ")
	require.NotContains(t, err.Error(), "hush")
	require.NotContains(t, err.Error(), "HERE")
	require.NotContains(t, err.Error(), "IDLE")
	targets, err := delivery.Open(c, "another", place, clock)
	require.NoError(t, err)
	require.Empty(t, targets, "a pool needs its own targets alone")
	targets.Close()
}
