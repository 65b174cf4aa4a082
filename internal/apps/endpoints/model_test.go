package endpoints_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

type expected struct {
	there         bool
	state         endpoints.State
	reason        string
	failing       time.Time
	secret, older string
	until         time.Time
	audit         []string
}

// TestEveryHistoryOfAnEndpointAgreesWithTheModel makes any sequence of answers, changes by people, waits and
// failures of the store, and compares the endpoint and its lists with a model after each step.
// It is never given up while a success stands behind its last failure, nor before its days are over.
func TestEveryHistoryOfAnEndpointAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	w := open(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		id := fmt.Sprint("p", runs)
		w.faults.Down(false)
		w.now = noon
		added := w.add(t, endpoints.New{ID: id})
		m := expected{there: true, state: endpoints.Enabled, secret: added.Secret, audit: []string{"local:ada add a partner"}}
		tell := func(t *rapid.T, status int) {
			w.posting.answers(status)
			if status == 0 {
				w.posting.status, w.posting.err = 0, retry.Down("callee_unreachable", nil)
			}
			requests := len(w.posting.sent)
			effect, err := w.told(t, event(t, fmt.Sprint("evt-", w.ids), id, "a"))
			w.ids++
			switch {
			case !m.there:
				require.Equal(t, endpoints.EndpointUnknown, effect.Result)
			case m.state == endpoints.Disabled:
				require.Equal(t, endpoints.EndpointDisabled, effect.Result)
			default:
				secrets := []string{m.secret}
				if w.now.Before(m.until) {
					secrets = append(secrets, m.older)
				}
				require.Equal(t, secrets, w.posting.sent[requests].to.Secrets)
				requests++
				switch {
				case status == 200:
					require.NoError(t, err)
					m.failing = time.Time{}
				case status == 410, !m.failing.IsZero() && w.now.Sub(m.failing) >= days:
					require.NoError(t, err)
					m.state, m.reason = endpoints.Disabled, endpoints.Failing
					if status == 410 {
						m.reason = endpoints.Gone
					}
					require.Equal(t, endpoints.EndpointDisabled, effect.Result)
					require.Equal(t, []string{news}, []string{effect.Emit[0].To})
					_, message, err := shipped.Contracts.Compose(effect.Emit[0].Body, contract.Stamp{ID: "n-1", OrderingKey: effect.Emit[0].OrderingKey, At: w.now})
					require.NoError(t, err, "the news are as the catalog declares them")
					since := ""
					if !m.failing.IsZero() {
						since = `,"failing_since":"` + m.failing.Format(time.RFC3339) + `"`
					}
					require.Contains(t, string(message.Data), `"type":"endpoint.disabled"`)
					require.Contains(t, string(message.Data), `"data":{"endpoint_id":"`+id+`","reason":"`+m.reason+`"`+since+`}`)
					m.audit = append(m.audit, "billhook disable "+m.reason)
				default:
					require.Error(t, err)
					if m.failing.IsZero() {
						m.failing = w.now
					}
				}
			}
			require.Len(t, w.posting.sent, requests)
		}
		// change is a person's, which m follows, and says whether that changed anything.
		change := func(name string, do func(context.Context, string, audit.Change) (endpoints.Endpoint, error), follow func() bool) {
			_, err := do(context.Background(), id, ada)
			if !m.there {
				require.ErrorIs(t, err, endpoints.ErrUnknown)
				return
			}
			require.NoError(t, err)
			if follow() {
				m.audit = append(m.audit, "local:ada "+name+" a partner")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"the endpoint answers": func(t *rapid.T) { tell(t, rapid.SampledFrom([]int{200, 200, 503, 404, 0, 410}).Draw(t, "status")) },
			"it is not called": func(t *rapid.T) {
				w.posting.status, w.posting.err = 0, retry.Busy("callee_resting", nil)
				_, err := w.told(t, event(t, "evt-busy", id, "a"))
				require.Equal(t, m.there && m.state == endpoints.Enabled, err != nil)
			},
			"time passes": func(t *rapid.T) {
				w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Minute, 12 * time.Hour, days - time.Hour, days}).Draw(t, "wait"))
			},
			"the store is down": func(t *rapid.T) {
				w.faults.Down(true)
				_, err := w.told(t, event(t, "evt-down", id, "a"))
				w.faults.Down(false)
				require.Equal(t, retry.EveryMessage, retry.Decide(err).Scope, "it is no failure of the endpoint")
			},
			"a person enables it": func(*rapid.T) {
				change("enable", w.Enable, func() bool {
					before := m.state == endpoints.Enabled && m.failing.IsZero()
					m.state, m.reason, m.failing = endpoints.Enabled, "", time.Time{}
					return !before
				})
			},
			"a person disables it": func(*rapid.T) {
				change("disable", w.Disable, func() bool {
					if m.state == endpoints.Disabled {
						return false
					}
					m.state, m.reason = endpoints.Disabled, endpoints.ByHand
					return true
				})
			},
			"a person rotates its secret": func(*rapid.T) {
				var rotated endpoints.Secret
				change("rotate", func(ctx context.Context, id string, by audit.Change) (_ endpoints.Endpoint, err error) {
					rotated, err = w.Rotate(ctx, id, by)
					return rotated.Endpoint, err
				}, func() bool {
					m.secret, m.older, m.until = rotated.Secret, m.secret, w.now.Add(overlap)
					return true
				})
			},
			"a person removes it": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip("else little is left to look at")
				}
				change("remove", w.Remove, func() bool {
					m = expected{audit: m.audit}
					return true
				})
			},
			"": func(t *rapid.T) {
				e, err := w.Get(context.Background(), id)
				if !m.there {
					require.ErrorIs(t, err, endpoints.ErrUnknown)
				} else {
					require.NoError(t, err)
					require.Equal(t, expected{there: true, state: e.State, reason: e.Reason, failing: e.FailingSince, secret: m.secret, older: m.older, until: e.OldSecretUntil, audit: m.audit}, m)
				}
				changes, err := audit.Subject{Kind: endpoints.Kind, ID: id}.All(context.Background(), w.faults)
				require.NoError(t, err)
				var done []string
				for _, c := range changes {
					done = append(done, c.Who+" "+c.Action+" "+c.Why)
				}
				require.ElementsMatch(t, m.audit, done)
				for in, on := range map[endpoints.ListEndpoints]bool{
					{}: m.there, {Tenant: "default"}: m.there, {Tenant: "other"}: false,
					{State: "disabled"}: m.there && m.state == endpoints.Disabled, {State: "failing"}: m.there && !m.failing.IsZero(),
				} {
					in.Page = console.Page{Limit: store.MaxPage}
					page, _, err := w.List(context.Background(), in)
					require.NoError(t, err)
					require.Equal(t, on, slices.ContainsFunc(page, func(e endpoints.Endpoint) bool { return e.ID == id }), in)
				}
			},
		})
	})
}
