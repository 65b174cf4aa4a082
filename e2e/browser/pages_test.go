package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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

// shared is the gallery of all tests of this package. They take the pages as they are, and change nothing in it.
var shared struct {
	once sync.Once
	*gallery
	err error
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

// browser returns the path of Chromium. The test is skipped where it is not installed, but with
// REQUIRE_EMULATORS=1.
func browser(t *testing.T) string {
	t.Helper()
	path, err := findChromium()
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	return path
}

// onlyInFull skips a test with -short, which has one walk of the pages.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// axe returns the script of axe-core, on the same terms.
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
	path := browser(t)
	shared.once.Do(func() { shared.gallery, shared.err = openGallery(context.WithoutCancel(t.Context()), path) })
	require.NoError(t, shared.err)
	return shared.gallery
}

// fitting finds what does not fit, and on the smallest screen what does not with everything unfolded.
func fitting(t *tab) ([]string, error) {
	faults, err := t.fits(desktop, phone, narrow)
	if err != nil {
		return faults, err
	}
	if _, err := ask[bool](t, "unfold"); err != nil {
		return faults, err
	}
	unfolded, err := t.fits(narrow)
	return append(faults, unfolded...), err
}

// byAxe finds what axe-core finds, of all of its rules. In the other scheme it has the contrast looked at: nothing else
// changes.
func byAxe(script string) func(*tab) ([]string, error) {
	return func(t *tab) (faults []string, err error) {
		if _, err := run(t, chromedp.Evaluate[chromedp.Void](script)); err != nil {
			return nil, err
		}
		if _, err := ask[bool](t, "unfold"); err != nil {
			return nil, err
		}
		for _, view := range []struct {
			scheme, rule string
			size         size
		}{{light, "", desktop}, {light, "", phone}, {dark, "color-contrast", phone}} {
			if err := t.show(view.size, view.scheme); err != nil {
				return faults, err
			}
			found, err := ask[[]string](t, "faultsByAxe", view.rule)
			if err != nil {
				return faults, err
			}
			for _, fault := range found {
				faults = append(faults, fmt.Sprintf("%s, %s: %s", view.size.name, view.scheme, fault))
			}
		}
		return faults, nil
	}
}

// maxStops bounds how often Tab is pressed on a page. What comes behind is in lists, whose first rows were reached.
const maxStops = 70

// byTab finds what Tab does not reach in the order of the page, where the focus is not seen, and what moves.
func byTab(t *tab) ([]string, error) {
	if err := t.show(desktop, light); err != nil {
		return nil, err
	}
	if _, err := ask[bool](t, "holdStill"); err != nil {
		return nil, err
	}
	faults, err := ask[[]string](t, "faultsOfMotion")
	if err != nil {
		return faults, err
	}
	stops, err := ask[int](t, "countControls")
	if err != nil {
		return faults, err
	}
	for before := -1; before+1 < min(stops, maxStops); {
		if err := t.press(kb.Tab); err != nil {
			return faults, err
		}
		next, err := ask[struct {
			Stop   int      `json:"stop"`
			Faults []string `json:"faults"`
		}](t, "nextStop", before)
		if faults = append(faults, next.Faults...); err != nil || len(next.Faults) > 0 {
			return faults, err
		}
		before = next.Stop
	}
	return faults, nil
}

// forEverybody has a page looked at, read, and reached by Tab.
func forEverybody(script string) func(*tab) ([]string, error) {
	return func(t *tab) (all []string, err error) {
		for _, check := range []func(*tab) ([]string, error){byTab, fitting, byAxe(script)} {
			found, err := check(t)
			if all = append(all, found...); err != nil {
				return all, err
			}
		}
		return all, nil
	}
}

// alike is how many pages are looked at of those that say that something is not there, or cannot be shown: they look
// the same.
const alike = 8

func TestEveryPageIsForEverybody(t *testing.T) {
	onlyInFull(t)
	check, g := forEverybody(axe(t)), pagesOf(t)
	var problems atomic.Int32
	for _, st := range g.states() {
		t.Run(st.name, func(t *testing.T) {
			st.shop.faults.Down(st.down)
			t.Cleanup(func() { st.shop.faults.Down(false) })
			for _, a := range g.addresses {
				t.Run(a.name, func(t *testing.T) {
					t.Parallel()
					faults, err := g.look(st, a, func(t *tab, status int) ([]string, error) {
						if status != http.StatusOK && problems.Add(1) > alike {
							return nil, nil
						}
						return check(t)
					})
					require.NoError(t, err)
					require.Empty(t, faults, "%s\n%s", a.path, strings.Join(faults, "\n"))
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
	g := &gallery{chromium: c, visitors: map[*shop]*tab{}}
	require.NoError(t, g.welcome(s))
	check := forEverybody(axe(t))
	for _, a := range []address{{name: "a list", path: "/ops/products"}, {name: "a form", path: "/ops/products/" + e2e.Product + "/set"}} {
		faults, err := g.look(state{shop: s, answers: []int{200}}, a, func(t *tab, _ int) ([]string, error) { return check(t) })
		require.NoError(t, err)
		require.Empty(t, faults, "%s\n%s", a.path, strings.Join(faults, "\n"))
	}
}

// Forms that are answered by a page of their own: what they say has no address, and is seen once.
func TestWhatAFormAnswersIsForEverybody(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	require.NoError(t, s.sample(t.Context()))
	bad := order("82", 0, unknownProduct)
	require.NoError(t, s.send(t.Context(), bad.JSON()))
	require.NoError(t, s.ended(t.Context(), bad.EventID))
	require.NoError(t, s.tasks(t.Context(), "seal-journal"))
	check, ada := byAxe(axe(t)), s.visits(t, c, "ada")
	for _, form := range []struct{ path, button, says string }{
		{"/ops/events/" + bad.EventID + "/payload", "^Show the payload", unknownProduct},
		{"/ops/endpoints/" + samples.Partner + "/rotate", "a new secret$", "whsec_"},
		{"/ops/endpoints/" + samples.Partner + "/test", "a test$", "200"},
		{"/ops/journal/verify?tenant=default", "^Verify", "sealed|seals|entries"},
	} {
		ada.goes(form.path)
		if err := ada.focus("field", "^Why"); err == nil {
			ada.types("^Why", "the drill")
		}
		ada.presses("button", form.button)
		ada.sees(form.says)
		for _, check := range []func(*tab) ([]string, error){fitting, check} {
			faults, err := check(ada.tab)
			require.NoError(t, err)
			require.Empty(t, faults, "%s\n%s", form.path, strings.Join(faults, "\n"))
		}
	}
	require.Empty(t, ada.complaints())
}
