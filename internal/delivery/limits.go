package delivery

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/retry"
)

// limits spare a target: requests at once, requests a second, and requests while it fails.
// They are those of one instance.
type limits struct {
	catalog.Target
	// slots holds one for each request that is under way.
	slots chan struct{}
	rate  *rate.Limiter

	mu     sync.Mutex
	failed int // in a row
	// until is when an open breaker lets a request through again: one each rest, until one
	// does not fail.
	until time.Time
}

// unlimited is more than an instance has under way. A slot takes no memory.
const unlimited = 1 << 20

func newLimits(t catalog.Target) *limits {
	l := &limits{Target: t, slots: make(chan struct{}, cmp.Or(t.Concurrency, unlimited)), rate: rate.NewLimiter(rate.Inf, 0)}
	if t.RatePerSecond > 0 {
		l.rate = rate.NewLimiter(rate.Limit(t.RatePerSecond), t.Burst)
	}
	return l
}

// enter lets a request through, which then has to leave, or says why not.
func (l *limits) enter(ctx context.Context, now time.Time) error {
	turn := l.rate.ReserveN(now, 1)
	if wait := turn.DelayFrom(now); wait > 0 {
		turn.CancelAt(now)
		return retry.After(wait, retry.Busy("callee_rate", nil))
	}
	select {
	case l.slots <- struct{}{}:
	default:
		waiting, cancel := context.WithTimeout(ctx, l.Timeouts.Connect)
		defer cancel()
		select {
		case l.slots <- struct{}{}:
		case <-waiting.Done():
			return retry.Busy("callee_crowded", nil)
		}
	}
	if rest := l.resting(now); rest > 0 {
		<-l.slots
		return retry.After(rest, retry.Busy("callee_resting", nil))
	}
	return nil
}

// resting is how long the breaker stays open; 0 lets the request through.
func (l *limits) resting(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Breaker.Failures == 0 || l.failed < l.Breaker.Failures {
		return 0
	}
	if wait := l.until.Sub(now); wait > 0 {
		return wait
	}
	l.until = now.Add(l.Breaker.Rest)
	return 0
}

// leave ends a request that was let through. A refusal of its message is an answer, and no
// failure of the target.
func (l *limits) leave(now time.Time, failure error) {
	<-l.slots
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.Breaker.Failures == 0, errors.Is(failure, context.Canceled):
	case failure == nil || retry.Decide(failure).Class.Terminal():
		l.failed = 0
	default:
		if l.failed++; l.failed >= l.Breaker.Failures {
			l.until = now.Add(l.Breaker.Rest)
		}
	}
}

// transport bounds the steps that end in "unreachable"; the target's total timeout bounds a
// whole exchange.
func transport(t catalog.Target) *http.Transport {
	dialer := &net.Dialer{Timeout: t.Timeouts.Connect, KeepAlive: 30 * time.Second}
	proxy := http.ProxyFromEnvironment
	if !t.Internal {
		// Behind a proxy the address that is dialled is not known here.
		dialer.Control, proxy = public, nil
	}
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    t.Timeouts.Connect,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 32 << 10,
		DisableCompression:     true, // a small body could become a large one
	}
}

var (
	errNotPublic = errors.New("address not public")
	// shared are addresses behind a carrier's translation, benchmarks and protocol
	// assignments, which netip counts as global, and those that embed an IPv4 address.
	shared = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
	}
)

// public refuses a connection to an address that is not a public one. It is asked after the
// name is resolved, with the address that is dialled.
func public(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return errNotPublic
	}
	ip := at.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return errNotPublic
	}
	for _, prefix := range shared {
		if prefix.Contains(ip) {
			return errNotPublic
		}
	}
	return nil
}
