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
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
)

func (s *shop) visits(t *testing.T, c *chromium, name string) *tab {
	t.Helper()
	p := c.open(t, s.WorkerURL)
	p.show(phone, dark)
	p.signIn(name)
	p.sees("local:" + name)
	p.goes("/ops/")
	return p
}

// watches waits until the page, by itself or reloaded as one without a script, matches a regular expression.
// Between two pages there is none to read.
func (p *tab) watches(pattern string, reloaded bool) {
	p.t.Helper()
	found := regexp.MustCompile("(?i)" + pattern)
	for end := time.Now().Add(patience); ; e2e.Wait(p.t.Context(), 100*time.Millisecond) {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		cancel()
		if err == nil && found.MatchString(strings.Join(strings.Fields(text), " ")) {
			return
		}
		require.True(p.t, time.Now().Before(end), "the page never shows %s: %s %v", pattern, text, err)
		if reloaded {
			p.loads("again", chromedp.Reload())
		}
	}
}

func opened(t *testing.T) (*shop, *chromium) {
	t.Helper()
	return openShop(t), startChromium(t)
}

// It runs with -short, too.
func TestOnCallAMissingProductIsSetAndItsOrdersReplayed(t *testing.T) {
	t.Parallel()
	s, c := opened(t)
	bad := []e2e.Order{order("82", 0, unknownProduct), order("82", 1, unknownProduct)}
	for _, o := range bad {
		s.send(t, o.JSON())
		s.story(t, o.EventID, "DEAD_LETTERED")
	}
	queue := s.queueOf("order.paid").ID
	all := func(found console.List[deadletter.Item]) bool { return len(found.Items) == len(bad) }
	deadLetters := until(t, s, "/v1/ops/dead-letters?queue="+queue, all)
	ada := s.visits(t, c, "ada")

	ada.goes("/ops/")
	ada.sees(queue + " alert .*dead letters: 2")
	const head = `document.querySelector("main").getBoundingClientRect().top`
	require.LessOrEqual(t, run(ada, chromedp.Evaluate[float64](head)), 110.0, "the head is small on the phone")
	ada.presses("address", "/ops/queues/"+queue)
	ada.sees("unknown_product")
	ada.presses("address", "/ops/dead-letters?")
	ada.sees("unknown_product")
	ada.presses("address", "/ops/dead-letters/"+deadLetters.Items[0].ID)
	ada.types("^Search by any id", "  "+deadLetters.Items[0].EventID+" ")
	ada.presses("button", "^Search$")
	ada.presses("address", "/ops/events/"+deadLetters.Items[0].EventID)
	ada.sees(unknownProduct)

	ada.focus("button", "^Menu$")
	ada.press(kb.Enter)
	ada.presses("link", "^Products$")
	ada.types("^Product", unknownProduct)
	ada.presses("button", "^Show")
	ada.presses("link", "^Set")
	ada.types("points|worth", "500")
	ada.types("^Why", "sold since today")
	ada.presses("button", "^Set")
	ada.sees("500")

	ada.goes("/ops/dead-letters?queue=" + queue + "&reason=unknown_product")
	ada.presses("link", "^Replay all")
	ada.sees("Replay 2 dead letters")
	ada.sees("credited")
	ada.focus("button", "^Replay 2")
	ada.press(kb.Enter)
	const valid = `document.querySelector("main form[method=post]").checkValidity()`
	require.False(t, run(ada, chromedp.Evaluate[bool](valid)), "without a reason")
	ada.at("/ops/dead-letters/-/replay")
	ada.types("^Why", "the product is known now")
	ada.presses("button", "^Replay 2")
	ada.at("/ops/operations/")
	ada.watches("finished", true)
	ada.sees("local:ada")
	for n, o := range bad {
		s.story(t, o.EventID, "COMPLETED")
		ada.goes("/ops/events/" + o.EventID)
		ada.sees("credited")
		ada.sees("the product is known now")
		points, err := e2e.Points(t.Context(), s.Store, o.UID)
		require.NoError(t, err)
		require.EqualValues(t, 500*(1+n%3), points)
	}
	ada.goes("/ops/")
	ada.sees("well")
}

// A browser does not send a cookie with SameSite=Strict when it follows a link of another site.
func TestALinkOfAnotherSiteOpensThePageOfASignedInPerson(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	ada := s.visits(t, c, "ada")
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><title>Chat</title><main><a href="` + s.WorkerURL +
			`/ops/events?status=FAILED">the alert</a></main>`))
	}))
	t.Cleanup(chat.Close)
	ada.loads("the chat", chromedp.Navigate(strings.Replace(chat.URL, "127.0.0.1", "localhost", 1)))
	ada.follow("link", "^the alert$")
	ada.watches("You are local:ada until", false)
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
	ada.watches(first.EventID+".* completed", false)
	ada.focus("button", "^Stop refreshing$")
	ada.press("\r")
	s.send(t, second.JSON())
	s.story(t, second.EventID, "COMPLETED")
	require.NotContains(t, ada.reads(), second.EventID)
	ada.focus("button", "^Refresh by itself$")
	ada.press("\r")
	ada.watches(second.EventID+".* completed", false)
	require.Empty(t, ada.complaints())
}
