package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
)

// binary returns the path of Chromium or Chrome, which the test needs.
func binary(t *testing.T) (path string) {
	t.Helper()
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err = exec.LookPath(name); err == nil {
			return path
		}
	}
	emulatortest.Needs(t, err)
	return ""
}

const patience = time.Minute

type chromium struct{ browser context.Context }

func startChromium(t *testing.T) *chromium {
	t.Helper()
	options := chromedp.DefaultExecAllocatorOptions[:]
	options = append(options, chromedp.ExecPath(binary(t)), chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 { // its sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	browser, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() { cancel(); stop() })
	require.NoError(t, chromedp.Do(browser))
	return &chromium{browser}
}

type size struct {
	name          string
	width, height int64
	phone         bool
}

var (
	desktop = size{"desktop", 1280, 800, false}
	phone   = size{"phone", 390, 844, true}
	narrow  = size{"narrow", 320, 640, true}
)

const (
	light = "light"
	dark  = "dark"
)

// tab is a tab of a person, who uses the keyboard alone. It is not safe for concurrent use.
type tab struct {
	t          *testing.T
	ctx        context.Context
	base, name string

	mu   sync.Mutex
	said []string
}

func (c *chromium) open(t *testing.T, base string) *tab {
	t.Helper()
	return openTab(c.browser, t, base, chromedp.WithNewBrowserContext())
}

// another opens another tab of the same person, who need not sign in again.
func (p *tab) another(t *testing.T) *tab {
	t.Helper()
	return openTab(p.ctx, t, p.base)
}

func openTab(of context.Context, t *testing.T, base string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(of, options...)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, base: base}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, p.keepErrors))
	return p
}

// keepErrors keeps the browser's errors: of a script, or of the page's content security policy.
func (p *tab) keepErrors(event any) {
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
		p.mu.Lock()
		p.said = append(p.said, "the browser reports: "+said)
		p.mu.Unlock()
	}
}

func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said
	p.said = nil
	return said
}

func run[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return filetest.Must(chromedp.Run(ctx, action))(p.t)
}

func (p *tab) visit(path string) (status int) {
	p.t.Helper()
	return p.loads(path, chromedp.Navigate(p.base+path))
}

func (p *tab) loads(what string, step chromedp.Action[chromedp.Void]) (status int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, step)
	require.NoError(p.t, err, what)
	require.NotNil(p.t, response, "%s: no page was loaded", what)
	return int(response.Status)
}

// show sets the size and the color scheme of the tab, without motion.
func (p *tab) show(s size, scheme string) {
	p.t.Helper()
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if s.phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	run(p, chromedp.EmulateViewport(s.width, s.height, options...))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	run(p, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		return filetest.ErrorOf(cdp.Call(ctx, target, emulation.SetEmulatedMedia, media))
	}))
}

const tallest = 6000

func (p *tab) picture(s size) []byte {
	p.t.Helper()
	height, yes := run(p, chromedp.Evaluate[int64]("document.documentElement.scrollHeight")), true
	clip := &page.Viewport{
		Width: float64(s.width), Height: float64(min(max(height, s.height), tallest)), Scale: 1,
	}
	shot := page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &yes, Clip: clip,
	}
	return run(p, func(ctx context.Context, target *chromedp.Target) ([]byte, error) {
		taken, err := cdp.Call(ctx, target, page.CaptureScreenshot, shot)
		return taken.Data, err
	})
}

// inPage has the functions of page.js.
//
//go:embed page.js
var inPage string

func ask[T any](p *tab, function string, arguments ...any) T {
	p.t.Helper()
	encoded := filetest.Must(json.Marshal(append([]any{}, arguments...)))(p.t)
	script := fmt.Sprintf("(() => {%s\nreturn %s(...%s)})()", inPage, function, encoded)
	return run(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

func (p *tab) press(keys string) {
	p.t.Helper()
	run(p, chromedp.KeyEvent(keys))
}

// finds moves the focus to the first link, button or field whose name matches a regular expression, those of
// the menu last; as an address, to the first link to an address that begins so.
func (p *tab) finds(role, name string) bool {
	p.t.Helper()
	return ask[bool](p, "focusOn", role, name)
}

func (p *tab) focus(role, name string) {
	p.t.Helper()
	require.True(p.t, p.finds(role, name), "the page has no %s %q: %s", role, name, p.reads())
}

func (p *tab) follow(role, name string) (status int) {
	p.t.Helper()
	p.focus(role, name)
	return p.loads(role+" "+name, chromedp.KeyEvent(kb.Enter))
}

func (p *tab) types(label, text string) {
	p.t.Helper()
	p.focus("field", label)
	ask[bool](p, "selectAll")
	p.press(text)
}

// signIn signs in by a name alone, as on this machine.
func (p *tab) signIn(name string) {
	p.t.Helper()
	p.goes("/ops/sign-in")
	p.types("^Your name", name)
	p.presses("button", "^Sign in")
}

func (p *tab) reads() string {
	p.t.Helper()
	return strings.Join(strings.Fields(run(p, chromedp.Evaluate[string]("document.body.innerText"))), " ")
}

func (p *tab) path() string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[string]("location.pathname + location.search"))
}

func (p *tab) goes(path string) {
	p.t.Helper()
	require.Equal(p.t, http.StatusOK, p.visit(path), path)
}

func (p *tab) presses(role, name string) {
	p.t.Helper()
	status := p.follow(role, name)
	require.Equal(p.t, http.StatusOK, status, "%s %s: %s", role, name, p.reads())
}

func (p *tab) sees(pattern string) {
	p.t.Helper()
	require.Regexp(p.t, "(?i)"+pattern, p.reads())
}

func (p *tab) at(path string) {
	p.t.Helper()
	require.True(p.t, strings.HasPrefix(p.path(), path), p.path())
}
