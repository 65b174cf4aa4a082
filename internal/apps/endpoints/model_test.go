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
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/retry"
)

// expected is the model of one endpoint.
type expected struct {
	there         bool
	state         endpoints.State
	reason        string
	failing       time.Time
	secret, older string
	until         time.Time
	audit         []string
}

// history is an endpoint and its model.
type history struct {
	*world
	id string
	m  expected
}

// An endpoint is never disabled after a success, nor before it has failed for days.
func TestEveryHistoryOfAnEndpointAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	w := open(t)
	runs := 0
	statuses := rapid.SampledFrom([]int{200, 200, 503, 404, 0, 410})
	waits := rapid.SampledFrom([]time.Duration{time.Minute, 12 * time.Hour, days - time.Hour, days})
	rapid.Check(t, func(t *rapid.T) {
		runs++
		w.faults.Down(false)
		w.now = noon
		h := &history{world: w, id: fmt.Sprint("p", runs)}
		secret := w.add(t, endpoints.AddEndpoint{ID: h.id}).Secret
		h.m = expected{
			there: true, state: endpoints.Enabled, secret: secret, audit: []string{"local:ada add a partner"},
		}
		t.Repeat(map[string]func(*rapid.T){
			"the endpoint answers":        func(t *rapid.T) { h.answered(t, statuses.Draw(t, "status")) },
			"time passes":                 func(t *rapid.T) { w.now = w.now.Add(waits.Draw(t, "wait")) },
			"it gets no request":          h.notCalled,
			"the store is down":           h.storeDown,
			"a person enables it":         h.enabled,
			"a person disables it":        h.disabled,
			"a person rotates its secret": h.rotated,
			"a person removes it":         h.removed,
			"":                            h.check,
		})
	})
}

func (h *history) answered(t *rapid.T, status int) {
	h.poster.answers(status)
	if status == 0 {
		h.poster.status, h.poster.err = 0, retry.Down("callee_unreachable", nil)
	}
	requests, m := len(h.poster.sent), &h.m
	effect, err := h.send(t, event(t, fmt.Sprint("evt-", h.ids), h.id, "a"))
	h.ids++
	switch {
	case !m.there:
		require.Equal(t, endpoints.EndpointUnknown, effect.Result)
	case m.state == endpoints.Disabled:
		require.Equal(t, endpoints.EndpointDisabled, effect.Result)
	default:
		secrets := []string{m.secret}
		if h.now.Before(m.until) {
			secrets = append(secrets, m.older)
		}
		require.Equal(t, secrets, h.poster.sent[requests].to.Secrets)
		requests++
		switch {
		case status == 200:
			require.NoError(t, err)
			m.failing = time.Time{}
		case status == 410, !m.failing.IsZero() && h.now.Sub(m.failing) >= days:
			require.NoError(t, err)
			m.state, m.reason = endpoints.Disabled, endpoints.Failing
			if status == 410 {
				m.reason = endpoints.Gone
			}
			h.requireNotice(t, effect)
			m.audit = append(m.audit, "billhook disable "+m.reason)
		default:
			require.Error(t, err)
			if m.failing.IsZero() {
				m.failing = h.now
			}
		}
	}
	require.Len(t, h.poster.sent, requests)
}

// requireNotice requires the event of a disabled endpoint, as the catalog declares it.
func (h *history) requireNotice(t *rapid.T, effect handler.Effect) {
	require.Equal(t, endpoints.EndpointDisabled, effect.Result)
	require.Len(t, effect.Emit, 1)
	emitted := effect.Emit[0]
	require.Equal(t, notices, emitted.To)
	stamp := contract.Stamp{ID: "n-1", OrderingKey: emitted.OrderingKey, At: h.now}
	_, message := filetest.Both(shipped.Contracts.Compose(emitted.Body, stamp))(t)
	since := ""
	if !h.m.failing.IsZero() {
		since = `,"failing_since":"` + h.m.failing.Format(time.RFC3339) + `"`
	}
	require.Contains(t, string(message.Data), `"type":"endpoint.disabled"`)
	require.Contains(t, string(message.Data),
		`"data":{"endpoint_id":"`+h.id+`","reason":"`+h.m.reason+`"`+since+`}`)
}

func (h *history) notCalled(t *rapid.T) {
	h.poster.status, h.poster.err = 0, retry.Busy("callee_resting", nil)
	_, err := h.send(t, event(t, "evt-busy", h.id, "a"))
	require.Equal(t, h.m.there && h.m.state == endpoints.Enabled, err != nil)
}

func (h *history) storeDown(t *rapid.T) {
	h.faults.Down(true)
	_, err := h.send(t, event(t, "evt-down", h.id, "a"))
	h.faults.Down(false)
	require.Equal(t, retry.EveryMessage, retry.Decide(err).Scope, "it is not a failure of the endpoint")
}

type doing = func(context.Context, audit.Author, endpoints.ChangeEndpoint) (endpoints.Endpoint, error)

// change makes a person's change. follow changes the model, and reports whether it did.
func (h *history) change(t *rapid.T, name string, do doing, follow func() bool) {
	_, err := do(context.Background(), ada.Who, of(h.id))
	if !h.m.there {
		require.ErrorIs(t, err, endpoints.ErrUnknown)
		return
	}
	require.NoError(t, err)
	if follow() {
		h.m.audit = append(h.m.audit, "local:ada "+name+" a partner")
	}
}

func (h *history) enabled(t *rapid.T) {
	h.change(t, "enable", h.Enable, func() bool {
		before := h.m.state == endpoints.Enabled && h.m.failing.IsZero()
		h.m.state, h.m.reason, h.m.failing = endpoints.Enabled, "", time.Time{}
		return !before
	})
}

func (h *history) disabled(t *rapid.T) {
	h.change(t, "disable", h.Disable, func() bool {
		if h.m.state == endpoints.Disabled {
			return false
		}
		h.m.state, h.m.reason = endpoints.Disabled, endpoints.ByHand
		return true
	})
}

func (h *history) rotated(t *rapid.T) {
	var secret string
	rotate := func(ctx context.Context, by audit.Author, in endpoints.ChangeEndpoint) (
		endpoints.Endpoint, error,
	) {
		rotated, err := h.Rotate(ctx, by, in)
		secret = rotated.Secret
		return rotated.Endpoint, err
	}
	h.change(t, "rotate", rotate, func() bool {
		h.m.secret, h.m.older, h.m.until = secret, h.m.secret, h.now.Add(overlap)
		return true
	})
}

func (h *history) removed(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
		t.Skip("it is rarely removed")
	}
	h.change(t, "remove", h.Remove, func() bool {
		h.m = expected{audit: h.m.audit}
		return true
	})
}

func (h *history) check(t *rapid.T) {
	m := h.m
	e, err := h.Get(context.Background(), h.id)
	if !m.there {
		require.ErrorIs(t, err, endpoints.ErrUnknown)
	} else {
		require.NoError(t, err)
		require.Equal(t, expected{
			there: true, state: e.State, reason: e.Reason, failing: e.FailingSince, secret: m.secret,
			older: m.older, until: e.OldSecretUntil, audit: m.audit,
		}, m)
	}
	changes := filetest.Must(audit.Subject{Kind: endpoints.Kind, ID: h.id}.All(context.Background(),
		h.faults))(t)
	require.ElementsMatch(t, m.audit, filetest.Map(changes, func(c audit.Entry) string {
		return c.Who + " " + c.Action + " " + c.Why
	}))
	for in, listed := range map[endpoints.ListEndpoints]bool{
		{}: m.there, {Tenant: "default"}: m.there, {Tenant: "other"}: false,
		{State: "disabled"}: m.there && m.state == endpoints.Disabled,
		{State: "failing"}:  m.there && !m.failing.IsZero(),
	} {
		require.Equal(t, listed, slices.Contains(h.list(t, in), h.id), in)
	}
}
