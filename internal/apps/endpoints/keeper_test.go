package endpoints_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

func TestANewSecretIsOneOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	first, second := endpoints.NewSecret(), endpoints.NewSecret()
	require.NotEqual(t, first, second)
	encoded, ok := strings.CutPrefix(first, "whsec_")
	require.True(t, ok)
	key, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	require.Len(t, key, 32)
}

func TestANewEndpointHasDefaultsAndItsSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	added := w.add(t, endpoints.New{})
	require.Equal(t, endpoints.Endpoint{
		ID: "ep_id-1", Tenant: "default", URL: "https://partner.example/hooks", Events: []string{"#"}, State: endpoints.Enabled, CreatedAt: noon, ChangedAt: noon,
	}, added.Endpoint)
	require.Equal(t, "whsec_id-2", added.Secret)
	require.Equal(t, added.Endpoint, w.get(t, "ep_id-1"))
	_, err := w.Add(t.Context(), endpoints.New{ID: "ep_id-1", URL: "https://other.example"}, ada)
	require.ErrorIs(t, err, endpoints.ErrExists)
	require.Equal(t, added.Endpoint, w.get(t, "ep_id-1"))
}

func TestAnInvalidEndpointIsRefused(t *testing.T) {
	t.Parallel()
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprint("a", i)
	}
	for sentence, test := range map[string]struct {
		asked endpoints.New
		by    endpoints.Change
		want  string
	}{
		"an odd id":              {endpoints.New{ID: "a~b"}, ada, "an id and a tenant"},
		"an odd tenant":          {endpoints.New{Tenant: "a/b"}, ada, "an id and a tenant"},
		"a pattern that is none": {endpoints.New{Events: []string{"a", "b..c"}}, ada, "events are at most 50 patterns"},
		"too many patterns":      {endpoints.New{Events: many}, ada, "events are at most 50 patterns"},
		"a URL that is too long": {endpoints.New{URL: "https://a.example/" + strings.Repeat("x", 2048)}, ada, "the URL has more than 2048 bytes"},
		"no reason":              {endpoints.New{}, endpoints.Change{Who: "local:ada"}, "needs a reason"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			_, err := w.Add(t.Context(), test.asked, test.by)
			require.True(t, errors.Is(err, endpoints.ErrInvalid) || errors.Is(err, audit.ErrInvalid), err)
			require.ErrorContains(t, err, test.want)
			page, _, err := w.List(t.Context(), endpoints.Choice{}, store.Cursor{}, 10)
			require.NoError(t, err)
			require.Empty(t, page)
		})
	}
	w := open(t)
	w.posting.checks = fmt.Errorf("%w: not there", endpoints.ErrInvalid)
	_, err := w.Add(t.Context(), endpoints.New{URL: "https://a.example"}, ada)
	require.ErrorIs(t, err, endpoints.ErrInvalid, "where requests may not go, nothing is registered")
}

func TestTheSecretBeforeARotationSignsUntilItsEnd(t *testing.T) {
	t.Parallel()
	w := open(t)
	first := w.add(t, endpoints.New{ID: "p"}).Secret
	rotated, err := w.Rotate(t.Context(), "p", ada)
	require.NoError(t, err)
	for after, secrets := range map[time.Duration][]string{overlap - 1: {rotated.Secret, first}, overlap: {rotated.Secret}} {
		w.now = noon.Add(after)
		_, err = w.Test(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, secrets, w.posting.sent[len(w.posting.sent)-1].to.Secrets, after)
	}
}

func TestEveryChangeOfAnEndpointIsInTheAudit(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.New{ID: "p"})
	step := func(change func(context.Context, string, endpoints.Change) (endpoints.Endpoint, error)) endpoints.Endpoint {
		t.Helper()
		w.now = w.now.Add(time.Second)
		e, err := change(t.Context(), "p", ada)
		require.NoError(t, err)
		return e
	}
	require.Equal(t, endpoints.ByHand, step(w.Disable).Reason)
	before := w.get(t, "p")
	require.Equal(t, before, step(w.Disable), "what is so already is not changed, nor written down")
	require.Empty(t, step(w.Enable).Reason)
	w.now = w.now.Add(time.Second)
	_, err := w.Rotate(t.Context(), "p", ada)
	require.NoError(t, err)
	require.Equal(t, "p", step(w.Remove).ID)
	changes, err := audit.Subject{Kind: endpoints.Kind, ID: "p"}.All(t.Context(), w.faults)
	require.NoError(t, err)
	var actions []string
	for _, c := range changes {
		require.Equal(t, "local:ada", c.Who)
		require.Equal(t, "a partner", c.Why)
		actions = append(actions, c.Action)
	}
	require.Equal(t, []string{"remove", "rotate", "enable", "disable", "add"}, actions)
}

func TestAListBeginsWithTheNewestAndAsksOncePerPage(t *testing.T) {
	t.Parallel()
	w := open(t)
	for i := range 7 {
		w.now = noon.Add(time.Duration(i) * time.Second)
		w.add(t, endpoints.New{ID: fmt.Sprint("p", i), Tenant: []string{"one", "two"}[i%2]})
	}
	_, err := w.Disable(t.Context(), "p3", ada)
	require.NoError(t, err)
	w.posting.answers(503)
	failing := event(t, "evt-1", "p4", "a")
	failing.Tenant = "one"
	_, err = w.told(t, failing)
	require.Error(t, err)
	for sentence, test := range map[string]struct {
		of   endpoints.Choice
		want []string
	}{
		"all":         {endpoints.Choice{}, []string{"p6", "p5", "p4", "p3", "p2", "p1", "p0"}},
		"of a tenant": {endpoints.Choice{Tenant: "two"}, []string{"p5", "p3", "p1"}},
		"disabled":    {endpoints.Choice{Disabled: true}, []string{"p3"}},
		"failing":     {endpoints.Choice{Failing: true}, []string{"p4"}},
		"of nobody":   {endpoints.Choice{Tenant: "three"}, nil},
	} {
		var ids []string
		queries, gets := w.counter.Queries.Load(), w.counter.Gets.Load()
		for after, pages := (store.Cursor{}), int64(1); ; pages++ {
			page, next, err := w.List(t.Context(), test.of, after, 2)
			require.NoError(t, err)
			for _, e := range page {
				require.Equal(t, w.get(t, e.ID), e, "a list shows the endpoint as it stands")
				ids = append(ids, e.ID)
			}
			require.Equal(t, pages, w.counter.Queries.Load()-queries, sentence)
			if after = next; next.IsZero() {
				break
			}
		}
		require.Equal(t, test.want, ids, sentence)
		require.EqualValues(t, len(ids), w.counter.Gets.Load()-gets, "the test's own")
	}
}

func TestAChangeWhoseAnswerWasLostIsAnError(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.faults.FailAfter(1)
	_, err := w.Add(t.Context(), endpoints.New{ID: "p", URL: "https://a.example"}, ada)
	require.Error(t, err)
	require.NotErrorIs(t, err, endpoints.ErrInvalid)
	_, err = w.Add(t.Context(), endpoints.New{ID: "p", URL: "https://a.example"}, ada)
	require.ErrorIs(t, err, endpoints.ErrExists)
	_, err = w.Rotate(t.Context(), "p", ada)
	require.NoError(t, err, "a rotation gives the secret that was not seen a successor")
}
