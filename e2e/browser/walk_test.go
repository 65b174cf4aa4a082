package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"billhook/internal/platform/standin"
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

// waits reloads the page until it matches a regular expression, as a page without its script.
func (p *tab) waits(pattern string) {
	p.t.Helper()
	p.until(pattern, func() { p.loads("again", chromedp.Reload()) })
}

// watches waits until the page, by itself, matches a regular expression.
func (p *tab) watches(pattern string) {
	p.t.Helper()
	p.until(pattern, func() {})
}

// until polls the page until it matches, and does something between. Between two pages there is none to read.
func (p *tab) until(pattern string, between func()) {
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
		between()
	}
}

func opened(t *testing.T) (*shop, *chromium) {
	t.Helper()
	return openShop(t), startChromium(t)
}

func (s *shop) deadLetters(t *testing.T, queue string, count int) console.List[deadletter.Item] {
	t.Helper()
	all := func(found console.List[deadletter.Item]) bool { return len(found.Items) == count }
	return until(t, s, "/v1/ops/dead-letters?queue="+url.QueryEscape(queue), all)
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
	deadLetters := s.deadLetters(t, queue, len(bad))
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
	ada.types("^Why", "the product is known now")
	ada.presses("button", "^Replay 2")
	ada.at("/ops/operations/")
	ada.waits("finished")
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

func TestMoneyIsReplayedByTwoPersonsInTwoBrowsers(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	const refund, of = "refund-of-two", "payment-of-two"
	require.NoError(t, s.Gateway.Behave(of, standin.Fail, 2))
	s.put(t, refund, "refund", map[string]any{"payment_id": of}, map[string]any{"max_attempts": 2})
	s.story(t, refund, "DEAD_LETTERED")
	queue := s.queueOf("refund").ID
	s.deadLetters(t, queue, 1)
	ada, grace := s.visits(t, c, "ada"), s.visits(t, c, "grace")

	ada.goes("/ops/dead-letters?queue=" + queue)
	ada.presses("link", "^Replay all")
	ada.sees("second person")
	ada.types("^Why", "the gateway is back")
	ada.presses("button", "^Replay 1 dead letter$")
	ada.at("/ops/operations/")
	ada.sees("waits for a second person")
	operation := ada.path()

	// Nobody approves an operation of their own, offered or not.
	require.False(t, ada.finds("address", operation+"/approve"))
	ada.goes(operation + "/approve")
	ada.types("^Why", "mine")
	require.Equal(t, http.StatusUnprocessableEntity, ada.follow("button", "^Approve"))
	ada.sees("somebody else")
	require.Zero(t, s.Gateway.Refunded(of))

	grace.goes("/ops/operations")
	grace.presses("address", operation)
	grace.sees("the gateway is back")
	grace.presses("address", operation+"/approve")
	grace.sees(of)
	grace.focus("button", "^Approve")
	grace.press(kb.Enter)
	const valid = `document.querySelector("main form[method=post]").checkValidity()`
	require.False(t, run(grace, chromedp.Evaluate[bool](valid)), "without a reason")
	grace.at(operation + "/approve")
	grace.types("^Why", "checked with the gateway")
	grace.presses("button", "^Approve")
	grace.at(operation)
	grace.waits("finished")
	grace.sees("local:ada")
	grace.sees("local:grace")
	grace.sees("checked with the gateway")
	s.story(t, refund, "COMPLETED")
	require.Equal(t, 1, s.Gateway.Refunded(of))
	ada.goes("/ops/refunds/" + of)
	ada.sees("refunded")
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
	ada.watches(first.EventID + ".* completed")
	ada.focus("button", "^Stop refreshing$")
	ada.press("\r")
	s.send(t, second.JSON())
	s.story(t, second.EventID, "COMPLETED")
	require.NotContains(t, ada.reads(), second.EventID)
	ada.focus("button", "^Refresh by itself$")
	ada.press("\r")
	ada.watches(second.EventID + ".* completed")
	require.Empty(t, ada.complaints())
}
