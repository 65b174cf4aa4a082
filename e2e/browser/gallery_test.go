// Package browser looks at the operations pages in a headless Chromium, as people see them: on a desktop and
// on a phone, light and dark, of a full shop, of an empty one, and while the database is down. Its tests walk
// the pages as people on call do, and ask axe-core and the keyboard about each. They start processes of their
// own; one walk runs with -short.
//
// `make screenshots` has pictures of every page taken in the place of that, and those of the README by
// ONLY=readme.
package browser

import (
	"flag"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/pages"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
)

var into = flag.String("into", "", "the folder that pictures are written to")

// onlyInFull skips a test with -short, which has one walk of the pages.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

type address struct {
	// name is a file's, too.
	name, path string
	// refused: what it asks for is refused, whatever there is.
	refused bool
}

// alike is how many pages are looked at of those that say that something is not there, or cannot be shown:
// they look the same.
const alike = 8

// Every page that the pages declare, of a full shop, of an empty one, and while the database is down. With
// -into the pages are photographed in the place of being read.
func TestEveryPageIsForEverybody(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	check := photograph
	if *into == "" {
		check = forEverybody(axe(t))
	}
	full, c := opened(t)
	empty := openShop(t)
	full.fill(t)
	addresses := full.addresses(t)
	var problems atomic.Int32
	look := func(name string, s *shop, down bool, answers ...int) {
		visitor := s.visits(t, c, "ada") // a change is offered to who has a name
		t.Run(name, func(t *testing.T) {
			s.faults.Down(down)
			t.Cleanup(func() { s.faults.Down(false) })
			for _, a := range addresses {
				t.Run(a.name, func(t *testing.T) {
					t.Parallel()
					p := visitor.another(t)
					p.name = filepath.Join(name, a.name)
					status := p.visit(a.path)
					if !a.refused || status != http.StatusBadRequest {
						require.Contains(t, answers, status, a.path)
					}
					if *into == "" && status != http.StatusOK && problems.Add(1) > alike {
						return
					}
					p.faultless(a.path, check)
				})
			}
		})
	}
	look("full", full, false, 200)
	look("empty", empty, false, 200, 404)
	look("broken", full, true, 200, 503)
	ada := full.visits(t, c, "ada")
	if *into != "" {
		t.Run("readme", ada.readme)
		return
	}
	t.Run("an id of any kind is found in one box", func(t *testing.T) { ada.t = t; ada.searches(full) })
	t.Run("no link of an event's page leads to nothing", full.links)
	t.Run("what a form answers", func(t *testing.T) { ada.t = t; ada.answers(check) })
}

// faultless requires that a check finds nothing, and that the browser complains of nothing.
func (p *tab) faultless(path string, check func(*tab) []string) {
	p.t.Helper()
	faults := append(check(p), p.complaints()...)
	require.Empty(p.t, faults, "%s\n%s", path, strings.Join(faults, "\n"))
}

func photograph(p *tab) []string {
	name := filepath.Join(*into, p.name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(name), 0o750))
	for _, scheme := range []string{light, dark} {
		for _, s := range []size{desktop, phone} {
			p.show(s, scheme)
			require.NoError(p.t, os.WriteFile(strings.Join([]string{name, s.name, scheme}, "-")+".png",
				p.picture(s), 0o600))
		}
	}
	return p.fits(narrow, phone, desktop)
}

func (p *tab) readme(t *testing.T) {
	require.NoError(t, os.MkdirAll(*into, 0o750))
	for file, one := range map[string]struct {
		path, scheme string
		size         size
	}{
		"overview.png": {"/ops/", light, size{"readme", 1280, 800, false}},
		"event.png":    {"/ops/events/" + eventOfDeadLetter, dark, size{"readme", 390, 844, true}},
	} {
		p.show(one.size, one.scheme)
		p.goes(one.path)
		require.NoError(t, os.WriteFile(filepath.Join(*into, file), run(p, chromedp.CaptureScreenshot()), 0o600))
	}
}

// axe returns the script of axe-core. The test is skipped where there is none, but with REQUIRE_EMULATORS=1.
func axe(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "..", "bin", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("axe-core is not installed: make axe")
	}
	require.NoError(t, err, "make axe")
	return string(script)
}

// fits lists what does not fit at each of some sizes, light.
func (p *tab) fits(sizes ...size) (faults []string) {
	p.t.Helper()
	for _, s := range sizes {
		p.show(s, light)
		for _, fault := range ask[[]string](p, "faultsOfSize", s.phone) {
			faults = append(faults, fmt.Sprintf("at %d: %s", s.width, fault))
		}
		screens := map[string]int64{desktop.name: 1, phone.name: 2}[s.name]
		height := run(p, chromedp.Evaluate[int64](
			`document.querySelectorAll("#queues tbody tr").length > 6 ? 0 : document.documentElement.scrollHeight`))
		// with up to six queues that need somebody
		if p.path() == "/ops/" && screens > 0 && height > screens*s.height {
			faults = append(faults, fmt.Sprintf("at %d: the overview is %d high", s.width, height))
		}
	}
	return faults
}

// maxStops bounds how often Tab is pressed on a page. What comes behind is in lists, whose first rows were
// reached.
const maxStops = 70

// byTab finds what Tab does not reach in the order of the page, where the focus is not seen, and what moves.
func byTab(p *tab) []string {
	p.show(desktop, light)
	ask[bool](p, "holdStill")
	faults := ask[[]string](p, "faultsOfMotion")
	stops := ask[int](p, "countControls")
	for before := -1; before+1 < min(stops, maxStops) && len(faults) == 0; {
		p.press(kb.Tab)
		next := ask[struct {
			Stop   int      `json:"stop"`
			Faults []string `json:"faults"`
		}](p, "nextStop", before)
		faults, before = next.Faults, next.Stop
	}
	return faults
}

// forEverybody has a page reached by Tab, looked at, on the smallest screen with everything unfolded, and
// read by all of axe-core's rules. In the other scheme it has the contrast looked at: nothing else changes.
func forEverybody(script string) func(*tab) []string {
	return func(p *tab) []string {
		faults := append(byTab(p), p.fits(desktop, phone, narrow)...)
		run(p, chromedp.Evaluate[chromedp.Void](script))
		ask[bool](p, "unfold")
		faults = append(faults, p.fits(narrow)...)
		for _, view := range []struct {
			scheme, rule string
			size         size
		}{{light, "", desktop}, {light, "", phone}, {dark, "color-contrast", phone}} {
			p.show(view.size, view.scheme)
			for _, fault := range ask[[]string](p, "faultsByAxe", view.rule) {
				faults = append(faults, fmt.Sprintf("%s, %s: %s", view.size.name, view.scheme, fault))
			}
		}
		return faults
	}
}

// answers looks at forms that are answered by a page of their own: what they say has no address, and is seen
// once.
func (p *tab) answers(check func(*tab) []string) {
	p.t.Helper()
	for _, form := range []struct{ path, button, says string }{
		{"/ops/events/" + eventOfDeadLetter + "/payload", "^Payload", unknownProduct},
		{"/ops/endpoints/" + samples.Partner + "/rotate", "^Rotate$", "whsec_"},
		{"/ops/endpoints/" + samples.Partner + "/test", "^Test$", "200"},
	} {
		p.goes(form.path)
		if p.finds("field", "^Why") {
			p.types("^Why", "the drill")
		}
		p.presses("button", form.button)
		p.sees(form.says)
		p.faultless(form.path, check)
	}
}

// searches finds what has an id, by that alone.
func (p *tab) searches(s *shop) {
	p.t.Helper()
	for prefix, ids := range s.subjects(p.t) {
		kind := strings.Trim(strings.TrimPrefix(strings.TrimSuffix(prefix, "{"), "/ops/"), "/")
		if slices.Contains([]string{
			"queues", "catalog/queues", "catalog/contracts", "journal/periods", "runbooks", "stock", "usage",
		}, kind) {
			continue // these have names, or one that something else has
		}
		p.search(ids[len(ids)-1], "/ops/"+kind+"/"+ids[len(ids)-1])
	}
	p.search(payNowOrder, "/ops/events/"+event)
	p.search(buyer, "/ops/accounts/"+string(ledger.UserPoints(buyer)))
	p.search("dev-trial-subscription", "/ops/events/") // a correlation id
	p.goes("/ops/search?q=nothing-has-this-id")
	p.sees("Nothing has this id")
}

func (p *tab) search(id, leads string) {
	p.t.Helper()
	p.goes("/ops/")
	p.types("^Search by any id", "  "+id+" ")
	p.presses("button", "^Search$")
	if !strings.HasPrefix(p.path(), leads) { // it led to several things
		p.at("/ops/search")
		p.presses("way", leads)
	}
	p.at(leads)
}

var ownLink = regexp.MustCompile(`<a [^>]*href="(/[^"]*)"`)

func (s *shop) links(t *testing.T) {
	load := func(path string) (status int, links [][]string) {
		response, err := http.Get(s.WorkerURL + path) //nolint:noctx // it ends with the shop
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		page, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, ownLink.FindAllStringSubmatch(string(page), -1)
	}
	followed, found := map[string]bool{}, 0
	for path := "/v1/ops/events?limit=100"; path != ""; {
		var list console.List[events.Line]
		s.get(t, path, &list)
		for _, line := range list.Items {
			found++
			page := "/ops/events/" + url.PathEscape(line.EventID) + "?" +
				url.Values{"queue": {line.Queue}, "tenant": {line.Tenant}}.Encode()
			status, links := load(page)
			require.Equal(t, http.StatusOK, status, page)
			for _, link := range links {
				if way := html.UnescapeString(link[1]); !followed[way] {
					followed[way] = true
					status, _ := load(way)
					assert.Equal(t, http.StatusOK, status, "%s, %s in %s, links to %s", page, line.EventType,
						line.Queue, way)
				}
			}
		}
		if path = ""; list.Next != "" {
			path = "/v1/ops/events?limit=100&page=" + url.QueryEscape(list.Next)
		}
	}
	require.Greater(t, found, 50)
	require.Greater(t, len(followed), 100)
}

// routes are those of the pages that are looked at, as the pages themselves declare them, such as
// /ops/queues/{id}.
func (s *shop) routes(t *testing.T) (all []string) {
	t.Helper()
	site := &pages.Pages{
		Declared: operations.All(operations.Apps{}), Catalog: s.catalog, Now: time.Now,
		Sessions: &access.Sessions{Log: slog.New(slog.DiscardHandler), Now: time.Now},
	}
	router := chi.NewRouter()
	site.Routes(router)
	require.NoError(t,
		chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if method == http.MethodGet && !strings.HasSuffix(route, "*") && route != "/ops" {
				all = append(all, route)
			}
			return nil
		}))
	slices.Sort(all)
	return slices.Compact(all)
}

// subjects are what the routes with a place for an id are shown about: the beginning of the routes, and
// the ids. The longest beginning holds.
func (s *shop) subjects(t *testing.T) map[string][]string {
	t.Helper()
	orders, updates := s.queueOf("order.paid").ID, s.queueOf("cancellation").ID
	var deadLetters, long console.List[deadletter.Item]
	s.get(t, "/v1/ops/dead-letters?queue="+orders, &deadLetters)
	s.get(t, "/v1/ops/dead-letters?queue="+updates+"&event_id="+longID[:128], &long)
	var operations console.List[bulk.Operation]
	s.get(t, "/v1/ops/operations", &operations)
	var entries console.List[ledger.Entry]
	s.get(t, "/v1/ops/journal/entries?period="+period, &entries)
	found := map[string][]string{
		"/ops/queues/{":            {orders, s.queueOf(notification).ID, s.queueOf("usage_sync").ID},
		"/ops/catalog/queues/{":    {orders},
		"/ops/catalog/contracts/{": {"message.v1:order.created:1", "payment.v1"},
		"/ops/dead-letters/{":      {deadLetters.Items[0].ID, long.Items[0].ID},
		"/ops/events/{":            {event, eventOfDeadLetter, longID[:128]},
		"/ops/accounts/{":          {string(ledger.UserPoints(buyer))},
		"/ops/customers/{":         {buyersCustomer},
		"/ops/subscriptions/{":     {usageOf},
		"/ops/usage/{":             {usageOf},
		"/ops/orders/{":            {shopOrder},
		"/ops/refunds/{":           {payment},
		"/ops/journal/entries/{":   {entries.Items[0].ID},
		"/ops/products/{":          {"700000000000000995"},
		"/ops/endpoints/{":         {longID[:100], samples.Partner},
		"/ops/journal/periods/{":   {period},
		"/ops/stock/{":             {samples.Product},
		"/ops/runbooks/{":          {"dead-letters"},
		"/ops/reasons/{":           {"unknown_product"},
	}
	const of = "/ops/operations/{"
	for _, op := range operations.Items {
		if op.Progress == bulk.Waiting { // the first, for there is most to do with it
			found[of] = slices.Insert(found[of], 0, op.ID)
		} else {
			found[of] = append(found[of], op.ID)
		}
	}
	return found
}

// addresses are all pages of the shop, each route at least once, some with a question in their address. An
// empty shop is asked for the pages of a full one.
func (s *shop) addresses(t *testing.T) (all []address) {
	t.Helper()
	orders := "queue=" + s.queueOf("order.paid").ID
	questions := map[string][]string{
		"/ops/search":       {"q=" + event, "q=" + buyer, "q=" + longID[:128], "q=" + url.QueryEscape(markup)},
		"/ops/dead-letters": {orders, orders + "&reason=unknown_product"},
		"/ops/events":       {"status=DEAD_LETTERED", "event_id=" + event},
	}
	// These show nothing without a question.
	onlyAsked := map[string]string{
		"/ops/dead-letters/preview": orders, "/ops/dead-letters/-/replay": orders,
		"/ops/dead-letters/-/discard": orders, "/ops/dead-letters/-/complete": orders,
	}
	subjects := s.subjects(t)
	for _, route := range s.routes(t) {
		name := strings.Trim(strings.NewReplacer("/", "-", "{", "", "}",
			"").Replace(strings.TrimPrefix(route, "/ops")), "-")
		if name == "" {
			name = "overview"
		}
		if strings.HasSuffix(route, ".csv") { // a file
			continue
		}
		before, rest, has := strings.Cut(route, "{")
		_, behind, _ := strings.Cut(rest, "}")
		ids := subjects[before+"{"]
		switch {
		case onlyAsked[route] != "":
			all = append(all, address{name: name, path: route + "?" + onlyAsked[route]})
		case !has:
			all = append(all, address{name: name, path: route})
		case behind != "": // what can be done with one of them
			require.NotContains(t, behind, "{")
			require.NotEmpty(t, ids, "subjects has no example for %s", route)
			ids = ids[:1]
		}
		for i, question := range questions[route] {
			all = append(all, address{
				fmt.Sprint(name, "-asked-", i+1), route + "?" + question, strings.Contains(question, "%3Cscript"),
			})
		}
		require.Equal(t, has, len(ids) > 0, "subjects has no example for %s", route)
		for i, id := range ids {
			one := address{name: name, path: before + url.PathEscape(id) + behind}
			if i > 0 {
				one.name = fmt.Sprint(name, "-", i+1)
			}
			all = append(all, one)
		}
	}
	return all
}
