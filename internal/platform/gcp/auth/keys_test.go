package auth_test

import (
	"context"
	"crypto/rsa"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/auth"
)

// fetcher is a key server inside the test's bubble, so synctest.Wait returns after a fetch has
// ended.
type fetcher struct {
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func (f *fetcher) become(answer http.HandlerFunc) { f.answer.Store(&answer) }

func (f *fetcher) RoundTrip(r *http.Request) (*http.Response, error) {
	f.fetches.Add(1)
	answer := httptest.NewRecorder()
	(*f.answer.Load())(answer, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// newFetchingVerifier returns a verifier that gets its keys from answer.
func newFetchingVerifier(tb testing.TB, answer http.HandlerFunc, now *clock) (*auth.Verifier, *fetcher) {
	tb.Helper()
	keys := &fetcher{}
	keys.become(answer)
	verifier, err := auth.New(auth.Config{
		Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: keys}, Now: now.Now,
	})
	require.NoError(tb, err)
	return verifier, keys
}

// newWarmVerifier returns one that has its keys, of which old is one.
func newWarmVerifier(tb testing.TB, header string) (*clock, *auth.Verifier, *fetcher) {
	tb.Helper()
	now := &clock{}
	verifier, keys := newFetchingVerifier(tb, publish(map[string]*rsa.PrivateKey{"old": oldKey()}), now)
	require.NoError(tb, verifier.Verify(tb.Context(), header))
	return now, verifier, keys
}

// longLivedHeader returns the header of a valid token that lives for two days.
func longLivedHeader(tb testing.TB) string {
	tb.Helper()
	return "Bearer " + signed(tb, claimsWith(jwt.MapClaims{"exp": start.Add(48 * time.Hour).Unix()}))
}

func TestAKnownKeyNeverWaitsForAHangingKeyServer(t *testing.T) {
	t.Parallel()
	header, other := longLivedHeader(t), "Bearer "+sign(t, jwt.SigningMethodRS256, newKey(), "new", validClaims())
	synctest.Test(t, func(t *testing.T) {
		now, verifier, keys := newWarmVerifier(t, header)
		keys.become(hang)
		now.Advance(10 * time.Minute)

		began := time.Now()
		for range 3 {
			var pushes sync.WaitGroup
			for range 20 {
				pushes.Go(func() {
					if err := verifier.Verify(t.Context(), header); err != nil {
						t.Error(err)
					}
				})
			}
			pushes.Wait()
		}
		require.Zero(t, time.Since(began), "the cached key answers")
		synctest.Wait()
		require.EqualValues(t, 2, keys.fetches.Load(), "one fetch for all, behind their answers")

		require.ErrorIs(t, verifier.Verify(t.Context(), other), auth.ErrKeysUnavailable)
		require.Equal(t, 3*time.Second, time.Since(began), "a key that is not here is waited for, for one fetch")
		require.EqualValues(t, 2, keys.fetches.Load())
		require.NoError(t, verifier.Verify(t.Context(), header))
		require.ErrorIs(t, verifier.Verify(t.Context(), other), auth.ErrKeysUnavailable)
		synctest.Wait()
		require.EqualValues(t, 2, keys.fetches.Load(), "and not asked for again at once")

		now.Advance(10 * time.Second)
		began = time.Now()
		require.NoError(t, verifier.Verify(t.Context(), header))
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.EqualValues(t, 3, keys.fetches.Load())
		<-time.After(3 * time.Second) // the bubble's time: the fetch has timed out by then
	})
}

func TestTheEndOfARequestDoesNotEndItsBackgroundFetch(t *testing.T) {
	t.Parallel()
	header, fresh := longLivedHeader(t), "Bearer "+sign(t, jwt.SigningMethodRS256, newKey(), "new", validClaims())
	synctest.Test(t, func(t *testing.T) {
		now, verifier, keys := newWarmVerifier(t, header)
		release := make(chan struct{})
		keys.become(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
				publish(map[string]*rsa.PrivateKey{"new": newKey()})(w, r)
			case <-r.Context().Done():
			}
		})
		now.Advance(10 * time.Minute)
		ctx, leave := context.WithCancel(t.Context())
		require.NoError(t, verifier.Verify(ctx, header))
		leave()
		synctest.Wait()
		close(release)
		synctest.Wait()
		require.NoError(t, verifier.Verify(t.Context(), fresh))
		require.ErrorIs(t, verifier.Verify(t.Context(), header), auth.ErrInvalid, "what the set no longer holds is forgotten")
		require.EqualValues(t, 2, keys.fetches.Load())
	})
}

func TestARotatedKeyIsFetchedWhenItIsFirstUsed(t *testing.T) {
	t.Parallel()
	before, after := "Bearer "+signed(t, validClaims()), "Bearer "+sign(t, jwt.SigningMethodRS256, newKey(), "new", validClaims())
	synctest.Test(t, func(t *testing.T) {
		now, verifier, keys := newWarmVerifier(t, before)

		keys.become(publish(map[string]*rsa.PrivateKey{"old": oldKey(), "new": newKey()}))
		now.Advance(11 * time.Second)
		require.NoError(t, verifier.Verify(t.Context(), after))

		keys.become(publish(map[string]*rsa.PrivateKey{"new": newKey()}))
		now.Advance(10 * time.Minute)
		require.NoError(t, verifier.Verify(t.Context(), after), "the set is no longer fresh, and fetched")
		synctest.Wait()
		require.ErrorIs(t, verifier.Verify(t.Context(), before), auth.ErrInvalid, "a withdrawn key is forgotten")
		require.EqualValues(t, 3, keys.fetches.Load())
	})
}

func TestKeysAreFetchedOnceForAllCallers(t *testing.T) {
	t.Parallel()
	const callers = 50
	release := make(chan struct{})
	keys := serveKeys(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		publish(map[string]*rsa.PrivateKey{"old": oldKey()})(w, r)
	})
	verifier := newVerifier(t, auth.ModeOIDC, keys, &clock{})
	header := "Bearer " + signed(t, validClaims())

	results := make(chan error, callers)
	for range callers {
		go func() { results <- verifier.Verify(t.Context(), header) }()
	}
	close(release)
	for range callers {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 1, keys.fetches.Load())
}

func TestForgedKeyIDsCauseOneFetchAnInterval(t *testing.T) {
	t.Parallel()
	keys := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	now := &clock{}
	verifier := newVerifier(t, auth.ModeOIDC, keys, now)
	require.NoError(t, verifier.Verify(t.Context(), "Bearer "+signed(t, validClaims())))
	require.EqualValues(t, 1, keys.fetches.Load())

	for interval := range 3 {
		now.Advance(10 * time.Second)
		var group sync.WaitGroup
		for i := range 20 {
			forged := "Bearer " + sign(t, jwt.SigningMethodRS256, foreignKey(), strings.Repeat("k", i+1), validClaims())
			group.Go(func() {
				if err := verifier.Verify(t.Context(), forged); err == nil {
					t.Error("a forged token passed")
				}
			})
		}
		group.Wait()
		require.EqualValues(t, 2+interval, keys.fetches.Load())
	}
}

func TestAKeyServerDownAtTheStart(t *testing.T) {
	t.Parallel()
	keys := serveKeys(t, down)
	now := &clock{}
	verifier := newVerifier(t, auth.ModeOIDC, keys, now)
	header := "Bearer " + signed(t, validClaims())

	for range 5 {
		require.ErrorIs(t, verifier.Verify(t.Context(), header), auth.ErrKeysUnavailable)
	}
	require.EqualValues(t, 1, keys.fetches.Load(), "a server that is down is not hammered")

	keys.become(publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	now.Advance(10 * time.Second)
	require.NoError(t, verifier.Verify(t.Context(), header))
}

func TestAFetchTimesOutBeforeTheAckDeadline(t *testing.T) {
	t.Parallel()
	token := "Bearer " + signed(t, validClaims())
	synctest.Test(t, func(t *testing.T) {
		verifier, _ := newFetchingVerifier(t, hang, &clock{})
		began := time.Now()
		require.ErrorIs(t, verifier.Verify(t.Context(), token), auth.ErrKeysUnavailable)
		require.Less(t, time.Since(began), 10*time.Second, "the shortest ack deadline there is")
	})
}

func TestAKeyServerDownLater(t *testing.T) {
	t.Parallel()
	header, other := longLivedHeader(t), "Bearer "+sign(t, jwt.SigningMethodRS256, newKey(), "new", validClaims())
	synctest.Test(t, func(t *testing.T) {
		now, verifier, keys := newWarmVerifier(t, header)

		keys.become(down)
		now.Advance(24*time.Hour - time.Second)
		require.NoError(t, verifier.Verify(t.Context(), header), "kept for a day")
		synctest.Wait()
		require.EqualValues(t, 2, keys.fetches.Load())
		require.NoError(t, verifier.Verify(t.Context(), header))
		synctest.Wait()
		require.EqualValues(t, 2, keys.fetches.Load(), "one attempt an interval")
		require.ErrorIs(t, verifier.Verify(t.Context(), other), auth.ErrKeysUnavailable, "it may be genuine")

		now.Advance(11 * time.Second)
		require.ErrorIs(t, verifier.Verify(t.Context(), header), auth.ErrKeysUnavailable, "and no longer")
	})
}

func TestAnAnswerThatIsNoKeySetIsAFailedFetch(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":                   ``,
		"HTML":                      `<html>`,
		"an empty set":              `{"keys":[]}`,
		"an elliptic curve key":     `{"keys":[{"kty":"EC","kid":"old","crv":"P-256","x":"AQ","y":"AQ"}]}`,
		"a short modulus":           `{"keys":[{"kty":"RSA","kid":"old","n":"` + strings.Repeat("_", 171) + `","e":"AQAB"}]}`,
		"a huge modulus":            `{"keys":[{"kty":"RSA","kid":"old","n":"` + strings.Repeat("_", 2000) + `","e":"AQAB"}]}`,
		"an even exponent":          `{"keys":[{"kty":"RSA","kid":"old","n":"` + strings.Repeat("_", 342) + `","e":"Ag"}]}`,
		"a key for encryption":      `{"keys":[{"kty":"RSA","use":"enc","kid":"old","n":"` + strings.Repeat("_", 342) + `","e":"AQAB"}]}`,
		"more than the limit holds": string(keySetJSON(map[string]*rsa.PrivateKey{"old": oldKey()})) + strings.Repeat(" ", 256<<10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := serveKeys(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
			verifier := newVerifier(t, auth.ModeOIDC, keys, &clock{})
			require.ErrorIs(t, verifier.Verify(t.Context(), "Bearer "+signed(t, validClaims())), auth.ErrKeysUnavailable)
		})
	}
}

func TestFreshnessFollowsTheAnswerWithinBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cacheControl string
		fresh        time.Duration
	}{
		"as the server says":       {"public, max-age=600", 10 * time.Minute},
		"quoted":                   {`max-age="600"`, 10 * time.Minute},
		"at least a minute":        {"max-age=0", time.Minute},
		"negative":                 {"max-age=-5", time.Minute},
		"at most six hours":        {"max-age=604800", 6 * time.Hour},
		"a number beyond all time": {"max-age=9223372036854775807", 6 * time.Hour},
		"no number":                {"max-age=long", time.Hour},
		"not to be stored":         {"no-store, max-age=600", time.Minute},
		"nothing said":             {"", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := longLivedHeader(t)
			synctest.Test(t, func(t *testing.T) {
				now := &clock{}
				verifier, keys := newFetchingVerifier(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Cache-Control", test.cacheControl)
					_, _ = w.Write(keySetJSON(map[string]*rsa.PrivateKey{"old": oldKey()}))
				}, now)
				require.NoError(t, verifier.Verify(t.Context(), header))
				now.Advance(test.fresh - time.Second)
				require.NoError(t, verifier.Verify(t.Context(), header))
				synctest.Wait()
				require.EqualValues(t, 1, keys.fetches.Load())
				now.Advance(time.Second)
				require.NoError(t, verifier.Verify(t.Context(), header))
				synctest.Wait()
				require.EqualValues(t, 2, keys.fetches.Load())
			})
		})
	}
}

func TestACanceledCallerDoesNotEndTheFetchForTheOthers(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	keys := serveKeys(t, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		publish(map[string]*rsa.PrivateKey{"old": oldKey()})(w, r)
	})
	verifier := newVerifier(t, auth.ModeOIDC, keys, &clock{})
	header := "Bearer " + signed(t, validClaims())

	ctx, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- verifier.Verify(ctx, header) }()
	<-asked
	leave()
	require.ErrorIs(t, <-first, auth.ErrKeysUnavailable)
	go func() { second <- verifier.Verify(context.Background(), header) }()
	close(release)
	require.NoError(t, <-second)
	require.EqualValues(t, 1, keys.fetches.Load())
}
