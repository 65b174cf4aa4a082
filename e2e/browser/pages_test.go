package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// shared is the gallery of all tests of this package. They take the pages as they are, and change nothing in it.
var shared struct {
	once sync.Once
	*gallery
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.gallery != nil {
		shared.close()
	}
	os.Exit(code)
}

// browser returns the path of Chromium. The test is skipped where it is not installed, but with
// REQUIRE_EMULATORS=1, and in short mode, which has no processes.
func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser: runs without -short")
	}
	path, err := findChromium()
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	return path
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
	path := browser(t)
	shared.once.Do(func() { shared.gallery, shared.err = openGallery(context.WithoutCancel(t.Context()), path) })
	require.NoError(t, shared.err)
	return shared.gallery
}

// onEachPage has every page looked at, in each state, and fails with all that was found.
func onEachPage(t *testing.T, look func(*tab, state, address) ([]string, error)) {
	t.Helper()
	faults, err := pagesOf(t).each(regexp.MustCompile(os.Getenv("PAGES")), look)
	require.NoError(t, err)
	require.Empty(t, faults, "%d faults:\n%s", len(faults), strings.Join(faults, "\n"))
}

func TestEveryPageFitsItsScreenAndObeysItsPolicy(t *testing.T) {
	onEachPage(t, func(tab *tab, _ state, _ address) ([]string, error) {
		faults, err := tab.fits()
		if err != nil {
			return faults, err
		}
		if _, err := ask[bool](tab, "unfold"); err != nil {
			return faults, err
		}
		unfolded, err := tab.fits()
		return append(faults, unfolded...), err
	})
}

func TestNoPageHasAFaultThatAxeFinds(t *testing.T) {
	script := axe(t)
	onEachPage(t, func(tab *tab, _ state, _ address) ([]string, error) {
		if _, err := run(tab, chromedp.Evaluate[chromedp.Void](script)); err != nil {
			return nil, err
		}
		if _, err := ask[bool](tab, "unfold"); err != nil {
			return nil, err
		}
		var faults []string
		for _, view := range []struct {
			scheme, rule string
			size         size
		}{{light, "", desktop}, {light, "", phone}, {dark, "color-contrast", desktop}, {dark, "color-contrast", phone}} {
			if err := tab.show(view.size, view.scheme); err != nil {
				return faults, err
			}
			found, err := ask[[]string](tab, "faultsByAxe", view.rule)
			if err != nil {
				return faults, err
			}
			for _, fault := range found {
				faults = append(faults, fmt.Sprintf("%s, %s: %s", view.size.name, view.scheme, fault))
			}
		}
		return faults, nil
	})
}

// maxStops bounds how often Tab is pressed on a page. What comes behind is in lists, whose first rows were reached.
const maxStops = 70

func TestEveryControlIsReachedByTabInTheOrderOfItsPageAndNothingMoves(t *testing.T) {
	onEachPage(t, func(tab *tab, _ state, _ address) ([]string, error) {
		if err := tab.show(desktop, light); err != nil {
			return nil, err
		}
		faults, err := ask[[]string](tab, "faultsOfMotion")
		if err != nil {
			return faults, err
		}
		stops, err := ask[int](tab, "countControls")
		if err != nil {
			return faults, err
		}
		for stop := range min(stops, maxStops) {
			if err := tab.press(kb.Tab); err != nil {
				return faults, err
			}
			found, err := ask[[]string](tab, "faultsOfFocus", stop)
			if faults = append(faults, found...); err != nil || len(faults) > 5 {
				return faults, err
			}
		}
		return faults, nil
	})
}
