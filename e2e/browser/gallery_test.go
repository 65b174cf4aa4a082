// Package browser looks at the operations pages in a headless Chromium, as people see them: on a desktop and on a phone,
// light and dark, of a full shop, of an empty one, and while the database is down. Its tests walk the pages as people
// on call do, and ask axe-core and the keyboard about each. They start processes of their own; one walk runs with -short.
//
// Pictures of every page that the pages declare are taken by `make screenshots`, and those of the README by
//
//	go test ./e2e/browser -run TestThePicturesOfTheReadme -args -into $PWD/docs/images
package browser

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/ingest/webhook/samples"
)

// into is the folder that pictures are written to.
var into = flag.String("into", "", "the folder that pictures are written to")

// gallery is a full shop, an empty one, and a browser in which somebody has signed in to both.
type gallery struct {
	full, empty *shop
	chromium    *chromium
	// visitors have a tab of each shop.
	visitors  map[*shop]*tab
	addresses []address
	closers   []func()
}

// openGallery starts all of it until close.
func openGallery(t *testing.T) *gallery {
	t.Helper()
	g := &gallery{visitors: map[*shop]*tab{}}
	defer func() {
		if g.addresses == nil {
			g.close()
		}
	}()
	c, end := startChromium(t)
	g.chromium, g.closers = c, append(g.closers, end)
	for _, s := range []**shop{&g.full, &g.empty} {
		*s = openShop(t)
		visitor, closing := c.open(t, (*s).WorkerURL)
		g.visitors[*s], g.closers = visitor, append(g.closers, (*s).close, closing)
		visitor.signIn("ada") // a change is offered to who has a name
	}
	g.full.fill(t)
	g.addresses = g.full.addresses(t)
	return g
}

func (g *gallery) close() {
	for _, c := range slices.Backward(g.closers) {
		c()
	}
}

// state is how a shop is looked at.
type state struct {
	name string
	shop *shop
	// answers are the statuses that its pages may have.
	answers []int
	down    bool
}

// states are those that each page is looked at in. They follow each other: the last one takes the database
// away.
func (g *gallery) states() []state {
	return []state{
		{name: "full", shop: g.full, answers: []int{200}},
		{name: "empty", shop: g.empty, answers: []int{200, 404}},
		{name: "broken", shop: g.full, answers: []int{200, 503}, down: true},
	}
}

// look opens one page in a tab of its own, and requires that nothing is wrong with it: its status, what check finds, and
// what the browser complains of.
func (g *gallery) look(t *testing.T, st state, a address, check func(p *tab, status int) []string) {
	t.Helper()
	p := g.visitors[st.shop].another(t)
	p.name = filepath.Join(st.name, a.name)
	status := p.visit(a.path)
	if !a.refused || status != http.StatusBadRequest {
		require.Contains(t, st.answers, status, a.path)
	}
	faults := append(check(p, status), p.complaints()...)
	require.Empty(t, faults, "%s\n%s", a.path, strings.Join(faults, "\n"))
}

// photograph writes the pictures of a page, and finds what does not fit.
func photograph(p *tab) []string {
	name := filepath.Join(*into, p.name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(name), 0o750))
	for _, scheme := range []string{light, dark} {
		for _, s := range []size{desktop, phone} {
			p.show(s, scheme)
			require.NoError(p.t, os.WriteFile(strings.Join([]string{name, s.name, scheme}, "-")+".png", p.picture(s), 0o600))
		}
	}
	return p.fits(narrow, phone, desktop)
}

// shared is the gallery of all tests of this package. They take the pages as they are, and change nothing in it.
var shared struct {
	once sync.Once
	*gallery
}

func TestMain(m *testing.M) {
	// What runs side by side waits for the browser, not for a core of this process.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.gallery != nil {
		shared.close()
	}
	os.Exit(code)
}

// onlyInFull skips a test with -short, which has one walk of the pages.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
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

func pagesOf(t *testing.T) *gallery {
	t.Helper()
	onlyInFull(t)
	binary(t)
	shared.once.Do(func() { shared.gallery = openGallery(t) })
	require.NotNil(t, shared.gallery, "it could not be opened, as another test says")
	return shared.gallery
}

// fits lists what does not fit at each of some sizes, light.
func (p *tab) fits(sizes ...size) (faults []string) {
	p.t.Helper()
	for _, s := range sizes {
		p.show(s, light)
		for _, fault := range ask[[]string](p, "faultsOfSize", s.phone) {
			faults = append(faults, fmt.Sprintf("at %d: %s", s.width, fault))
		}
	}
	return faults
}

// fitting finds what does not fit, and on the smallest screen what does not with everything unfolded.
func fitting(p *tab) []string {
	p.t.Helper()
	faults := p.fits(desktop, phone, narrow)
	ask[bool](p, "unfold")
	return append(faults, p.fits(narrow)...)
}

// byAxe finds what axe-core finds, of all of its rules. In the other scheme it has the contrast looked at: nothing else
// changes.
func byAxe(script string) func(*tab) []string {
	return func(p *tab) (faults []string) {
		run(p, chromedp.Evaluate[chromedp.Void](script))
		ask[bool](p, "unfold")
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

// maxStops bounds how often Tab is pressed on a page. What comes behind is in lists, whose first rows were reached.
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

// forEverybody has a page looked at, read, and reached by Tab.
func forEverybody(script string) func(*tab) []string {
	return func(p *tab) []string { return slices.Concat(byTab(p), fitting(p), byAxe(script)(p)) }
}

// alike is how many pages are looked at of those that say that something is not there, or cannot be shown: they look
// the same.
const alike = 8

// With -into the pages are photographed in the place of being read.
func TestEveryPageIsForEverybody(t *testing.T) {
	onlyInFull(t)
	check := photograph
	if *into == "" {
		check = forEverybody(axe(t))
	}
	g := pagesOf(t)
	var problems atomic.Int32
	for _, st := range g.states() {
		t.Run(st.name, func(t *testing.T) {
			st.shop.faults.Down(st.down)
			t.Cleanup(func() { st.shop.faults.Down(false) })
			for _, a := range g.addresses {
				t.Run(a.name, func(t *testing.T) {
					t.Parallel()
					g.look(t, st, a, func(p *tab, status int) []string {
						if *into == "" && status != http.StatusOK && problems.Add(1) > alike {
							return nil
						}
						return check(p)
					})
				})
			}
		})
	}
}

// What every page has, in short: the frame, a list, and a form that changes something.
func TestAListAndAFormAreForEverybody(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	g := &gallery{visitors: map[*shop]*tab{s: s.visits(t, c, "ada")}}
	check := forEverybody(axe(t))
	for _, a := range []address{{name: "a list", path: "/ops/products"}, {name: "a form", path: "/ops/products/" + e2e.Product + "/set"}} {
		g.look(t, state{shop: s, answers: []int{200}}, a, func(p *tab, _ int) []string { return check(p) })
	}
}

// Forms that are answered by a page of their own: what they say has no address, and is seen once.
func TestWhatAFormAnswersIsForEverybody(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	s.sample(t)
	bad := order("82", 0, unknownProduct)
	s.send(t, bad.JSON())
	s.ended(t, bad.EventID)
	s.tasks(t, "seal-journal")
	check, ada := byAxe(axe(t)), s.visits(t, c, "ada")
	for _, form := range []struct{ path, button, says string }{
		{"/ops/events/" + bad.EventID + "/payload", "^Show the payload", unknownProduct},
		{"/ops/endpoints/" + samples.Partner + "/rotate", "a new secret$", "whsec_"},
		{"/ops/endpoints/" + samples.Partner + "/test", "a test$", "200"},
		{"/ops/journal/verify?tenant=default", "^Verify", "sealed|seals|entries"},
	} {
		ada.goes(form.path)
		if ada.finds("field", "^Why") {
			ada.types("^Why", "the drill")
		}
		ada.presses("button", form.button)
		ada.sees(form.says)
		for _, check := range []func(*tab) []string{fitting, check} {
			faults := check(ada)
			require.Empty(t, faults, "%s\n%s", form.path, strings.Join(faults, "\n"))
		}
	}
	require.Empty(t, ada.complaints())
}

// TestThePicturesOfTheReadme takes them, where it is asked to.
func TestThePicturesOfTheReadme(t *testing.T) {
	if *into == "" {
		t.Skip("runs with -into")
	}
	g := pagesOf(t)
	require.NoError(t, os.MkdirAll(*into, 0o750))
	for _, one := range []struct {
		file, page, scheme string
		size               size
	}{
		{"overview.png", "overview", light, size{"readme", 1120, 760, false}},
		{"event.png", "events-id-2", dark, size{"readme", 390, 844, true}},
	} {
		i := slices.IndexFunc(g.addresses, func(a address) bool { return a.name == one.page })
		require.NotEqual(t, -1, i, one.page)
		p := g.visitors[g.full].another(t)
		p.show(one.size, one.scheme)
		p.goes(g.addresses[i].path)
		require.NoError(t, os.WriteFile(filepath.Join(*into, one.file), run(p, chromedp.CaptureScreenshot()), 0o600))
	}
}
