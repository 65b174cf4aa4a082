// Package browser tests the operations pages in a headless Chromium: on a desktop and on a phone, light and
// dark, of a full shop, of an empty one, and while the database is down. Its tests do what people on call do,
// and check each page by axe-core and the keyboard. With -short, one of them runs.
//
// `make screenshots` takes pictures of every page instead, with ONLY=readme those of the README.
package browser

import (
	"flag"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/events"
)

var into = flag.String("into", "", "the folder that pictures are written to")

// onlyInFull skips a test with -short.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

type address struct {
	// name is that of its picture's file, too.
	name, path string
	// refused: the page refuses its query in every shop.
	refused bool
}

// alike is how many of the pages with an error are checked: they look the same.
const alike = 8

// It checks every page of a full and of an empty shop, and without the database; -into has it take pictures.
func TestEveryPageIsAccessible(t *testing.T) {
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
		visitor := s.visits(t, c, "ada") // only a person with a name is offered changes
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
	t.Run("each link of an event's page leads to a page", full.links)
	t.Run("the answers of forms", func(t *testing.T) { ada.t = t; ada.answers(check) })
}

// faultless requires that a check finds nothing, and the browser has no errors.
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
			file := strings.Join([]string{name, s.name, scheme}, "-") + ".png"
			require.NoError(p.t, os.WriteFile(file, p.picture(s), 0o600))
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

// axe returns the script of axe-core, which `make axe` installs, and the test needs.
func axe(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "..", "bin", "axe", "node_modules", "axe-core", "axe.min.js"))
	emulatortest.Needs(t, err)
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
		// The overview has to fit if at most six queues need attention.
		const many = `document.querySelectorAll("#queues tbody tr").length > 6`
		height := run(p, chromedp.Evaluate[int64](many+` ? 0 : document.documentElement.scrollHeight`))
		if p.path() == "/ops/" && screens > 0 && height > screens*s.height {
			faults = append(faults, fmt.Sprintf("at %d: the overview is %d high", s.width, height))
		}
	}
	return faults
}

// maxStops bounds how often Tab is pressed on a page. Further stops are in lists whose first rows it reaches.
const maxStops = 70

// byTab finds controls that Tab does not reach in the page's order, an invisible focus, and motion.
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

// forEverybody checks a page by Tab, by its size on each screen, on the smallest with everything unfolded,
// and by all rules of axe-core, of which only those of contrast depend on the color scheme.
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

// answers checks the forms that are answered by a page without an address of its own.
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

var ownLink = regexp.MustCompile(`<a [^>]*href="(/[^"]*)"`)

func (s *shop) links(t *testing.T) {
	load := func(path string) (status int, links [][]string) {
		url := s.WorkerURL + path
		page := filetest.Must(e2e.Do(e2e.Request(t.Context(), http.MethodGet, url, nil, nil)))(t)
		return page.Status, ownLink.FindAllStringSubmatch(page.Body, -1)
	}
	followed, found := map[string]bool{}, 0
	for path := "/v1/ops/events?limit=100"; path != ""; {
		var list console.List[events.Line]
		s.get(t, path, &list)
		for _, line := range list.Items {
			found++
			query := url.Values{"queue": {line.Queue}, "tenant": {line.Tenant}}
			page := "/ops/events/" + url.PathEscape(line.EventID) + "?" + query.Encode()
			status, links := load(page)
			require.Equal(t, http.StatusOK, status, page)
			for _, link := range links {
				if to := html.UnescapeString(link[1]); !followed[to] {
					followed[to] = true
					status, _ := load(to)
					assert.Equal(t, http.StatusOK, status, "%s, %s in %s, links to %s", page, line.EventType, line.Queue, to)
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
