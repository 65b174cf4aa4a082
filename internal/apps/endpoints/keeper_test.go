package endpoints_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
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

	lost := endpoints.New{ID: "lost", URL: "https://other.example"}
	w.faults.FailAfter(1)
	_, err = w.Add(t.Context(), lost, ada)
	require.ErrorIs(t, err, storetest.ErrFault)
	_, err = w.Add(t.Context(), lost, ada)
	require.ErrorIs(t, err, endpoints.ErrExists, "so whoever has not heard the answer knows")
}

func TestAnInvalidEndpointIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	many := slices.Repeat([]string{"a"}, 51)
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
		_, err := w.Add(t.Context(), test.asked, test.by)
		require.True(t, errors.Is(err, endpoints.ErrInvalid) || errors.Is(err, audit.ErrInvalid), err)
		require.ErrorContains(t, err, test.want, sentence)
	}
	w.posting.checks = fmt.Errorf("%w: not there", endpoints.ErrInvalid)
	_, err := w.Add(t.Context(), endpoints.New{URL: "https://a.example"}, ada)
	require.ErrorIs(t, err, endpoints.ErrInvalid, "where requests may not go, nothing is registered")
	page, _, err := w.List(t.Context(), endpoints.Choice{}, store.Cursor{}, 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

// The model knows what is on which list.
func TestAListBeginsWithTheNewestAndAsksOncePerPage(t *testing.T) {
	t.Parallel()
	w := open(t)
	for i := range 7 {
		w.now = noon.Add(time.Duration(i) * time.Second)
		w.add(t, endpoints.New{ID: fmt.Sprint("p", i), Tenant: []string{"one", "two"}[i%2]})
	}
	_, err := w.Disable(t.Context(), "p3", ada)
	require.NoError(t, err)
	for of, want := range map[endpoints.Choice]string{
		{}: "p6 p5 p4 p3 p2 p1 p0", {Tenant: "two"}: "p5 p3 p1", {Disabled: true}: "p3", {Failing: true}: "", {Tenant: "three"}: "",
	} {
		var ids []string
		queries, pages := w.counter.Queries.Load(), int64(0)
		for after := (store.Cursor{}); pages == 0 || !after.IsZero(); pages++ {
			page, next, err := w.List(t.Context(), of, after, 2)
			require.NoError(t, err)
			for _, e := range page {
				ids = append(ids, e.ID)
			}
			after = next
		}
		require.Equal(t, want, strings.Join(ids, " "))
		require.Equal(t, pages, w.counter.Queries.Load()-queries)
	}
}
