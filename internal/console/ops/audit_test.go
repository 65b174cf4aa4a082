package ops_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// history writes changes of several kinds, a minute apart, the last of them now: 0 and 3 of a product by
// ada, 1 of a queue by bob, 2 a replay by ada, which 4 cancels.
func (r *rig) history(t *testing.T) {
	t.Helper()
	when := func(n int) time.Time { return at.Add(time.Duration(n-4) * time.Minute) }
	for n, e := range map[int]audit.Entry{
		0: {Kind: "product", Subject: "hat", Action: "set", Who: "ada", Why: "sold", After: map[string]any{"points": int64(5)}},
		1: {Kind: "queue", Subject: "orders", Action: "pause", Who: "bob", Why: "ticket 7", Before: map[string]any{"paused": false}, After: map[string]any{"paused": true}},
		3: {Kind: "product", Subject: "hat", Action: "set", Who: "ada", Why: "dearer", Before: map[string]any{"points": int64(5)}, After: map[string]any{"points": int64(6)}},
		4: {Kind: deadletter.AuditKind, Subject: "op-1", Action: "cancel", Who: "bob", Why: "too many"},
	} {
		e.At = when(n)
		write, err := e.Write(fmt.Sprint("r", n))
		require.NoError(t, err)
		r.commit(t, write)
	}
	op := deadletter.Operation{
		Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "orders"}, Who: "ada", Why: "mended", Rate: 50, Total: 7,
		Progress: deadletter.Cancelled, CreatedAt: when(2),
	}
	r.commit(t, store.Create(store.Key{Collection: audit.Collection, ID: "op-1"}, store.Encode(&op)))
}

// said are the actions of a page of the audit, and the next page's token.
func (r *rig) said(t *testing.T, query string) (said []string, next string) {
	t.Helper()
	var list ops.List[audit.Entry]
	answer := r.ask(t, "/v1/ops/audit?"+query, nil, &list)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	for _, e := range list.Items {
		said = append(said, e.Action+" "+e.Subject+" by "+e.Who)
	}
	return said, list.Next
}

func TestTheAuditIsOfAllKindsTheNewestFirstWithOperations(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.history(t)
	for name, test := range map[string]struct {
		query string
		want  []string
	}{
		"all":                     {"", []string{"cancel op-1 by bob", "set hat by ada", "replay op-1 by ada", "pause orders by bob", "set hat by ada"}},
		"one kind":                {"kind=product", []string{"set hat by ada", "set hat by ada"}},
		"a kind that nobody uses": {"kind=moon", nil},
		"operations":              {"kind=operation", []string{"cancel op-1 by bob", "replay op-1 by ada"}},
		"one operation":           {"subject=op-1", []string{"cancel op-1 by bob", "replay op-1 by ada"}},
		"one person":              {"who=ada", []string{"set hat by ada", "replay op-1 by ada", "set hat by ada"}},
		"one operation of bob":    {"subject=op-1&who=bob", []string{"cancel op-1 by bob"}},
		"since":                   {"since=2m", []string{"cancel op-1 by bob", "set hat by ada", "replay op-1 by ada"}},
		"until":                   {"until=1m", []string{"replay op-1 by ada", "pause orders by bob", "set hat by ada"}},
		"between, of one":         {"since=3m&until=1m&subject=op-1", []string{"replay op-1 by ada"}},
		"before, of one":          {"until=2m&subject=op-1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, next := r.said(t, test.query)
			require.Equal(t, test.want, said)
			require.Empty(t, next)
		})
	}
}

func TestTheAuditIsReadPageByPageWithoutAGap(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.history(t)
	for _, filter := range []string{"", "subject=op-1", "who=ada", "since=1h"} {
		whole, _ := r.said(t, filter)
		for limit := 1; limit <= len(whole); limit++ {
			var all []string
			for next, page := "", 0; page == 0 || next != ""; page++ {
				require.Less(t, page, 10)
				query := fmt.Sprintf("%s&limit=%d", filter, limit)
				if next != "" {
					query += "&page=" + url.QueryEscape(next)
				}
				var some []string
				some, next = r.said(t, query)
				require.NotEmpty(t, some, "a page that is announced has something")
				all = append(all, some...)
			}
			require.Equal(t, whole, all, "%s by %d", filter, limit)
		}
	}
}

func TestTheAuditRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	r := open(t)
	for query, code := range map[string]string{
		"queue=orders":             "parameter_unknown",
		"kind=":                    "parameter_invalid",
		"who=%1b%5b2J":             "who_invalid",
		"subject=a%e2%80%aeb":      "subject_invalid",
		"since=yesterday":          "since_invalid",
		"since=1m&until=2m":        "since_invalid",
		"limit=101":                "limit_invalid",
		"page=bm90aGluZw":          "page_invalid",
		"kind=product&page=cGFnZQ": "page_invalid",
	} {
		var got struct {
			Code string `json:"code"`
		}
		require.Equal(t, http.StatusBadRequest, r.ask(t, "/v1/ops/audit?"+query, nil, &got).Code, query)
		require.Equal(t, code, got.Code, query)
	}
}
