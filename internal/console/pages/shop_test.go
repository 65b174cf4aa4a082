package pages_test

import (
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

type shop struct {
	site    http.Handler
	store   store.Store
	catalog *catalog.Catalog
	who     string
	// names are what stands for an id, such as {letter}, in addresses and in what pages say.
	names map[string]string
}

// openShop opens the pages on a new store. What is changed is changed at noon.
func openShop(t testing.TB, third operationstest.Partner) *shop {
	t.Helper()
	db := storetest.Open(t)
	c := catalogtest.Shipped()
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id-", ids.Add(1)) }
	now, log := func() time.Time { return noon }, slog.New(slog.NewTextHandler(t.Output(), nil))
	apps := operationstest.Over(db, c, now, newID)
	apps.Endpoints.Poster = third
	server := &api.Server{Author: access.Author, Log: log, Store: db, Now: now, Catalog: operations.All(apps)}
	site := opened(t, server, server.Catalog, access.Access{OpenOnLoopback: true}, time.Minute)
	return &shop{site: site, store: db, catalog: c, who: "ada", names: map[string]string{}}
}

func (s *shop) ask(t testing.TB, path, form string) *httptest.ResponseRecorder {
	t.Helper()
	method := http.MethodGet
	if form != "" {
		method = http.MethodPost
	}
	return visited(t, s.site, method, path, form, func(r *http.Request) { r.Header.Set("X-Operator", s.who) })
}

type step struct {
	// asks is the address, and form what is sent; empty: the page is looked at.
	asks, form string
	// status is what is answered; 0: 200, or after a form what leads to a page.
	status int
	// says is in the page, by its text or its markup. What begins with ! is not.
	says []string
}

var anchor = regexp.MustCompile(`href="([^"]+)" rel="next"`)

var expects = regexp.MustCompile(`name="expect" value="(\d+)"`)

// does takes the steps. {at} is where the last change led to, {next} the next page of the last list, and {seen} what the
// last form expects.
func (s *shop) does(t *testing.T, steps ...step) (page string) {
	t.Helper()
	named := func(text string) string {
		for name, id := range s.names {
			text = strings.ReplaceAll(text, "{"+name+"}", id)
		}
		return text
	}
	for _, one := range steps {
		answer := s.ask(t, named(one.asks), s.filled(t, named(one.asks), named(one.form)))
		want := one.status
		if one.form == "" && answer.Code == http.StatusSeeOther { // what was looked for is elsewhere
			answer = s.ask(t, answer.Header().Get("Location"), "")
		}
		switch {
		case one.form != "" && want == 0:
			require.Equal(t, http.StatusSeeOther, answer.Code, "%s: %s", one.asks, answer.Body)
			s.names["at"] = answer.Header().Get("Location")
			answer = s.ask(t, s.names["at"], "")
			fallthrough
		case want == 0:
			want = http.StatusOK
		}
		page = answer.Body.String()
		require.Equal(t, want, answer.Code, "%s: %s", one.asks, page)
		for _, part := range one.says {
			if text, absent := strings.CutPrefix(named(part), "!"); absent {
				require.NotContains(t, page, text, one.asks)
			} else {
				require.Contains(t, page+"\n"+shown(page), text, one.asks)
			}
		}
		if next := anchor.FindStringSubmatch(page); next != nil {
			s.names["next"] = strings.ReplaceAll(next[1], "&amp;", "&")
		}
		if seen := expects.FindStringSubmatch(page); seen != nil {
			s.names["seen"] = seen[1]
		}
	}
	return page
}

var hidden = regexp.MustCompile(`type="hidden" name="([a-z_]+)" value="([^"]*)"`)

// filled is a form with what its page sends along, but for what the person has seen, which the form says.
func (s *shop) filled(t *testing.T, path, form string) string {
	t.Helper()
	if form == "" {
		return ""
	}
	for _, sent := range hidden.FindAllStringSubmatch(s.ask(t, path, "").Body.String(), -1) {
		if sent[1] != "expect" {
			form += "&" + sent[1] + "=" + url.QueryEscape(html.UnescapeString(sent[2]))
		}
	}
	return form
}

func (s *shop) commit(t *testing.T, writes ...store.Write) {
	t.Helper()
	storetest.Put(t, s.store, writes...)
}

func morning(day int) time.Time { return time.Date(2026, 11, day, 9, 0, 0, 0, time.UTC) }

func (s *shop) credit(t *testing.T, order string, to ledger.Account, amount int64, day int) {
	t.Helper()
	s.commit(t, ledgertest.Credited(t, "default", order, "e-"+order, to, amount, morning(day))...)
}

func (s *shop) sells(t *testing.T, tenant, event, period string, day int) []store.Write {
	t.Helper()
	writes := filetest.Must(ledger.Post(ledgertest.Sale(tenant, event, period, 1250, morning(day))))(t)
	s.commit(t, writes...)
	return writes
}

// The last dead letter is of noon, the others a minute apart; they are {d0}, {d1} and so on, of {queue}.
func (s *shop) dies(t *testing.T, fourEyes bool, reasons ...string) {
	t.Helper()
	var q catalog.Queue
	for _, one := range s.catalog.Queues {
		if one.FourEyes == fourEyes && !one.DeadLetter.Drop && one.Enabled {
			q = one
			break
		}
	}
	s.names["queue"] = q.ID
	for n, reason := range reasons {
		kept := noon.Add(time.Duration(n-len(reasons)+1) * time.Minute)
		m := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{
			"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": fmt.Sprint("u", n%2), "dead_letter_reason": reason,
			"source_message_id": fmt.Sprint(100 + n), "delivery_attempts": "1", "dead_lettered_at": kept.Format(time.RFC3339),
		}}
		_, err := deadletter.Keep(t.Context(), s.store, q, m, fmt.Sprint(900+n), kept)
		require.NoError(t, err)
		s.names[fmt.Sprint("d", n)] = deadletter.ItemID(q, fmt.Sprint(100+n), m)
	}
}

func form(why string, pairs ...string) string {
	values := url.Values{"why": {why}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return strings.NewReplacer("%7B", "{", "%7D", "}").Replace(values.Encode()) // a name is put in
}
