package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
)

// watches waits until the page shows by itself what a regular expression finds. Between two pages there is none
// to read.
func (p *tab) watches(pattern string) {
	p.t.Helper()
	found := regexp.MustCompile("(?i)" + pattern)
	shows := func() (string, error) {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		return chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	}
	for end := time.Now().Add(patience); ; e2e.Wait(p.t.Context(), 100*time.Millisecond) {
		text, err := shows()
		if err == nil && found.MatchString(strings.Join(strings.Fields(text), " ")) {
			return
		}
		require.True(p.t, time.Now().Before(end), "the page never shows %s: %s %v", pattern, text, err)
	}
}

// A browser keeps a cookie back that is SameSite=Strict where a link of another site is followed.
func TestALinkInAChatLeadsToThePageOfWhoeverIsSignedIn(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	ada := s.visits(t, c, "ada")
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><title>Chat</title><main><a href="` + s.WorkerURL + `/ops/events?status=FAILED">the alert</a></main>`))
	}))
	t.Cleanup(chat.Close)
	ada.loads("the chat", chromedp.Navigate(strings.Replace(chat.URL, "127.0.0.1", "localhost", 1)))
	ada.follow("link", "^the alert$")
	ada.watches("You are local:ada until")
	ada.at("/ops/events?status=FAILED")
}

func TestTheListOfEventsRefreshesItselfUntilItIsStopped(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	ada := s.visits(t, c, "ada")
	ada.goes("/ops/events")
	first, second := order("91", 0, e2e.Product), order("91", 1, e2e.Product)
	s.send(t, first.JSON())
	ada.watches(first.EventID + " completed")
	ada.focus("button", "^Stop refreshing$")
	ada.press("\r")
	s.send(t, second.JSON())
	s.story(t, second.EventID, "COMPLETED")
	require.NotContains(t, ada.reads(), second.EventID)
	ada.focus("button", "^Refresh by itself$")
	ada.press("\r")
	ada.watches(second.EventID + " completed")
	require.Empty(t, ada.complaints())
}
