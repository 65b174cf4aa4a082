package delivery

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/retry"
)

// limits protect a target from the requests of this instance.
type limits struct {
	slots   *semaphore.Weighted
	rate    *rate.Limiter
	breaker *gobreaker.CircuitBreaker[Answer]
	// until is the end of an open breaker's rest; since is when it left the closed state. Unix nanoseconds.
	until, since atomic.Int64
}

func newLimits(of Config) *limits {
	t, now := of.Target, of.Now
	slots := semaphore.NewWeighted(cmp.Or(int64(t.Concurrency), math.MaxInt64))
	l := &limits{slots: slots, rate: rate.NewLimiter(rate.Inf, 0)}
	if t.RatePerSecond > 0 {
		l.rate = rate.NewLimiter(rate.Limit(t.RatePerSecond), t.Burst)
	}
	l.breaker = gobreaker.NewCircuitBreaker[Answer](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     t.Breaker.Rest,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return t.Breaker.Failures > 0 && int64(c.ConsecutiveFailures) >= int64(t.Breaker.Failures)
		},
		// A refused message is not a failure of the target.
		IsSuccessful: func(err error) bool { return err == nil || retry.Decide(err).Class.Terminal() },
		// A caller that left says nothing about the target.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed { // a repeated rest belongs to the same failure
				l.since.Store(now().UnixNano())
			}
			if to == gobreaker.StateOpen {
				l.until.Store(now().Add(t.Breaker.Rest).UnixNano())
			}
		},
	})
	return l
}

// within sends a request within the limits.
func (t *Target) within(ctx context.Context, send func() (Answer, error)) (Answer, error) {
	l, now := t.limits, t.config.Now()
	reserved := l.rate.ReserveN(now, 1)
	if wait := reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
		return Answer{}, retry.After(wait, retry.Busy("callee_rate", nil))
	}
	if !l.slots.TryAcquire(1) {
		waiting, cancel := context.WithTimeout(ctx, t.config.Target.Timeouts.Connect)
		defer cancel()
		if l.slots.Acquire(waiting, 1) != nil {
			return Answer{}, retry.Busy("callee_crowded", nil)
		}
	}
	defer l.slots.Release(1)
	answer, err := l.breaker.Execute(send)
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		// While one request tries the target, the others wait as if it had failed.
		rest := time.Unix(0, l.until.Load()).Sub(t.config.Now())
		if rest <= 0 {
			rest = t.config.Target.Breaker.Rest
		}
		return Answer{}, retry.After(rest, retry.Busy("callee_resting", nil))
	}
	return answer, err
}

// transport bounds connecting and the headers; the target's total timeout bounds a whole exchange.
func transport(t catalog.Target) *http.Transport {
	dialer := &net.Dialer{Timeout: t.Timeouts.Connect, KeepAlive: 30 * time.Second}
	proxy := http.ProxyFromEnvironment
	if !t.Internal {
		// With a proxy, the address that is dialled would not be known here.
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
		// By default an unread answer takes four megabytes, and a silent connection is never closed.
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 1 << 20,
			SendPingTimeout: 15 * time.Second, PingTimeout: t.Timeouts.Connect,
		},
	}
}

var errNotPublic = errors.New("address not public")

// internet refuses the addresses that are not public according to IANA's registries.
var internet = ssrf.New(ssrf.WithAnyPort())

// public runs before each connection, and refuses an address that is not public.
func public(network, address string, c syscall.RawConn) error {
	if internet.Safe(network, address, c) != nil {
		return errNotPublic
	}
	return nil
}
