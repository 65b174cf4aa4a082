package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// errNotInstalled says how to get what the programs of this package need.
var errNotInstalled = errors.New("Chromium is not installed: apt-get install chromium") //nolint:staticcheck // a name begins it

// findChromium returns the path of Chromium, or of a browser made of it. The error is errNotInstalled.
func findChromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNotInstalled
}

// patience bounds each step of a tab: a page, a key, a picture.
const patience = time.Minute

// chromium is one process of Chromium without a window. It is safe for concurrent use.
type chromium struct{ browser context.Context }

// startChromium starts it until end is called.
func startChromium(ctx context.Context, path string) (c *chromium, end func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 { // its sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	browser, cancel := chromedp.NewContext(allocator)
	end = func() { cancel(); stop() }
	if err := chromedp.Do(browser); err != nil {
		end()
		return nil, nil, fmt.Errorf("chromium: %w", err)
	}
	return &chromium{browser}, end, nil
}

// size is how large a tab is, in CSS pixels, and whether it is a phone's.
type size struct {
	name          string
	width, height int64
	phone         bool
}

// The sizes that pages are looked at in.
var (
	desktop = size{"desktop", 1280, 900, false}
	phone   = size{"phone", 390, 844, true}
	narrow  = size{"narrow", 320, 640, true}
)

// Schemes of colours.
const (
	light = "light"
	dark  = "dark"
)

// tab is a tab in a profile of its own: two tabs are two persons. It is not safe for concurrent use.
type tab struct {
	ctx context.Context
	// base is the address that paths are opened at.
	base string

	mu sync.Mutex
	// said is what the browser has complained of.
	said []string
}

// open opens a tab of a new person until close is called.
func (c *chromium) open(base string) (t *tab, closing func(), err error) {
	return openTab(c.browser, base, chromedp.WithNewBrowserContext())
}

// another opens another tab of the same person, who need not sign in again.
func (t *tab) another() (also *tab, closing func(), err error) { return openTab(t.ctx, t.base) }

func openTab(of context.Context, base string, options ...chromedp.ContextOption) (t *tab, closing func(), err error) {
	ctx, cancel := chromedp.NewContext(of, options...)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		return nil, nil, fmt.Errorf("chromium: %w", err)
	}
	t = &tab{ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, t.hear); err != nil {
		cancel()
		return nil, nil, fmt.Errorf("chromium: %w", err)
	}
	return t, cancel, nil
}

// hear takes note of what the browser complains of: an error of a script, or what the policy of the page does not
// allow. An answer other than 200 is none; see visit.
func (t *tab) hear(event any) {
	said := ""
	switch event := event.(type) {
	case *log.EventEntryAdded:
		if event.Entry.Source != log.EntrySourceNetwork && event.Entry.Level == log.EntryLevelError {
			said = event.Entry.Text
		}
	case *runtime.EventExceptionThrown:
		if said = event.ExceptionDetails.Text; event.ExceptionDetails.Exception != nil {
			said += " " + event.ExceptionDetails.Exception.Description
		}
	}
	if said != "" {
		t.mu.Lock()
		t.said = append(t.said, "the browser says: "+said)
		t.mu.Unlock()
	}
}

// complaints are what the browser has complained of since the last call.
func (t *tab) complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.said
	t.said = nil
	return said
}

// run runs one action within patience.
func run[T any](t *tab, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// visit opens a path, and returns the status of its page.
func (t *tab) visit(path string) (status int, err error) {
	return t.loads(path, chromedp.Navigate(t.base+path))
}

// loads takes a step that loads a page, and returns the status of that page.
func (t *tab) loads(what string, step chromedp.Action[chromedp.Void]) (status int, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, step)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if response == nil {
		return 0, fmt.Errorf("%s: no page was loaded", what)
	}
	return int(response.Status), nil
}

// show sets the size and the scheme of the tab, whose person has asked for no motion.
func (t *tab) show(s size, scheme string) error {
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if s.phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	if _, err := run(t, chromedp.EmulateViewport(s.width, s.height, options...)); err != nil {
		return fmt.Errorf("show %s: %w", s.name, err)
	}
	_, err := run(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
	if err != nil {
		return fmt.Errorf("show %s: %w", scheme, err)
	}
	return nil
}

// tallest bounds the height of a picture, in CSS pixels.
const tallest = 6000

// picture is a PNG of the page, from its top to its end.
func (t *tab) picture(s size) ([]byte, error) {
	height, err := run(t, chromedp.Evaluate[int64]("document.documentElement.scrollHeight"))
	if err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	yes := true
	return run(t, func(ctx context.Context, target *chromedp.Target) ([]byte, error) {
		taken, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &yes,
			Clip: &page.Viewport{Width: float64(s.width), Height: float64(min(max(height, s.height), tallest)), Scale: 1},
		})
		return taken.Data, err
	})
}

// screen is a PNG of what the tab shows.
func (t *tab) screen() ([]byte, error) { return run(t, chromedp.CaptureScreenshot()) }

// inPage has the functions of page.js.
//
//go:embed page.js
var inPage string

// ask calls one of the functions of page.js, and returns its answer.
func ask[T any](t *tab, function string, arguments ...any) (answer T, err error) {
	encoded, err := json.Marshal(append([]any{}, arguments...))
	if err != nil {
		return answer, err
	}
	script := fmt.Sprintf("(() => {%s\nreturn %s(...%s)})()", inPage, function, encoded)
	if answer, err = run(t, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise)); err != nil {
		return answer, fmt.Errorf("%s: %w", function, err)
	}
	return answer, nil
}

// press presses keys, one after the other.
func (t *tab) press(keys string) error {
	_, err := run(t, chromedp.KeyEvent(keys))
	return err
}

// focus moves the focus to the first control of a role whose name a regular expression finds, those of the menu
// last: a link, a button or a field. As a way it is a link to an address that begins so.
func (t *tab) focus(role, name string) error {
	found, err := ask[bool](t, "focusOn", role, name)
	if err == nil && !found {
		var text string
		if text, err = t.text(); err == nil {
			err = fmt.Errorf("the page has no %s %q: %s", role, name, text)
		}
	}
	return err
}

// follow presses Enter on a link or a button that loads a page, and returns the status of that page.
func (t *tab) follow(role, name string) (status int, err error) {
	if err := t.focus(role, name); err != nil {
		return 0, err
	}
	return t.loads(role+" "+name, chromedp.KeyEvent(kb.Enter))
}

// fill types into a field in the place of what it holds.
func (t *tab) fill(label, text string) error {
	if err := t.focus("field", label); err != nil {
		return err
	}
	if _, err := ask[bool](t, "selectAll"); err != nil {
		return err
	}
	return t.press(text)
}

// signIn signs in by a name alone, as people do on this machine.
func (t *tab) signIn(name string) error {
	if _, err := t.visit("/ops/sign-in"); err != nil {
		return err
	}
	if err := t.fill("^Your name", name); err != nil {
		return err
	}
	status, err := t.follow("button", "^Sign in")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("signing in is answered by %d", status)
	}
	return err
}

// text is what the page shows.
func (t *tab) text() (string, error) {
	return run(t, chromedp.Evaluate[string]("document.body.innerText"))
}

// path is the path and the query of the tab's address.
func (t *tab) path() (string, error) {
	return run(t, chromedp.Evaluate[string]("location.pathname + location.search"))
}
