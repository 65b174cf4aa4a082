package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
)

// visits lets somebody look at a shop, who signs in.
func (s *shop) visits(t *testing.T, c *chromium, name string) *tab {
	t.Helper()
	p, closing := c.open(t, s.WorkerURL)
	t.Cleanup(closing)
	p.show(phone, dark)
	p.signIn(name)
	p.sees("local:" + name)
	p.goes("/ops/")
	return p
}

// refused presses Enter on a button whose change is refused.
func (p *tab) refused(name string, status int, why string) {
	p.t.Helper()
	require.Equal(p.t, status, p.follow("button", name))
	p.sees(why)
}

// waits loads the page again until it shows what a regular expression finds, as the page does by itself where
// it has a script.
func (p *tab) waits(pattern string) {
	p.t.Helper()
	found := regexp.MustCompile("(?i)" + pattern)
	for end := time.Now().Add(patience); !found.MatchString(p.reads()); e2e.Wait(p.t.Context(), 100*time.Millisecond) {
		require.True(p.t, time.Now().Before(end), "the page never shows %s: %s", pattern, p.reads())
		p.loads("again", chromedp.Reload())
	}
}

// opened starts a shop and a browser of the test's own.
func opened(t *testing.T) (*shop, *chromium) {
	t.Helper()
	c, end := startChromium(t)
	t.Cleanup(end)
	s := openShop(t)
	t.Cleanup(s.close)
	return s, c
}

// letters waits for the dead letters of a queue and returns them.
func (s *shop) letters(t *testing.T, queue string, count int) ops.DeadLetters {
	t.Helper()
	return until(t, s, "/v1/ops/dead-letters?queue="+url.QueryEscape(queue), func(found ops.DeadLetters) bool { return len(found.Items) == count })
}

// The walk that is taken with -short too.
func TestOnCallAProductIsFoundMissingSetAndItsOrdersReplayed(t *testing.T) {
	t.Parallel()
	s, c := opened(t)
	bad := []e2e.Order{order("82", 0, unknownProduct), order("82", 1, unknownProduct)}
	for _, o := range bad {
		s.send(t, o.JSON())
		s.story(t, o.EventID, "DEAD_LETTERED")
	}
	queue := s.queueOf("order.paid").ID
	letters := s.letters(t, queue, len(bad))
	ada := s.visits(t, c, "ada")

	ada.goes("/ops/")
	ada.sees(queue + " alert .*Dead letters 2 open")
	ada.presses("way", "/ops/queues/"+queue)
	ada.sees("unknown_product")
	ada.presses("way", "/ops/dead-letters?")
	ada.sees("unknown_product")
	ada.presses("way", "/ops/dead-letters/"+letters.Items[0].ID)
	ada.presses("way", "/ops/events/"+letters.Items[0].EventID)
	ada.sees(unknownProduct)

	ada.focus("button", "More")
	ada.press(kb.Enter)
	ada.presses("link", "^Products$")
	ada.types("^Product", unknownProduct)
	ada.presses("button", "^Look it up")
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
	ada.sees(queue + " [a-z ]*Dead letters 0 open")
}

func TestMoneyIsReplayedByTwoPersonsInTwoBrowsers(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	const refund, of = "refund-of-two", "payment-of-two"
	require.NoError(t, s.Gateway.Tell(standin.FailOrder, 2, of))
	s.put(t, refund, "refund", map[string]any{"payment_id": of}, map[string]any{"max_attempts": 2})
	s.story(t, refund, "DEAD_LETTERED")
	queue := s.queueOf("refund").ID
	s.letters(t, queue, 1)
	ada, grace := s.visits(t, c, "ada"), s.visits(t, c, "grace")

	ada.goes("/ops/dead-letters?queue=" + queue)
	ada.presses("link", "^Replay all")
	ada.sees("second person")
	ada.types("^Why", "the gateway is back")
	ada.presses("button", "^Replay 1 dead letter$")
	ada.at("/ops/operations/")
	ada.sees("waits for a second person")
	asked := ada.path()

	// Nobody approves what is their own, be they offered it or not.
	require.False(t, ada.finds("way", asked+"/approve"))
	ada.goes(asked + "/approve")
	ada.types("^Why", "mine")
	ada.refused("^Approve", http.StatusUnprocessableEntity, "somebody else")
	require.Zero(t, s.Gateway.Refunded(of))

	grace.goes("/ops/operations")
	grace.presses("way", asked)
	grace.sees("the gateway is back")
	grace.presses("way", asked+"/approve")
	grace.sees(of)
	grace.refusesWithoutWhy("^Approve")
	grace.types("^Why", "checked with the gateway")
	grace.presses("button", "^Approve")
	grace.at(asked)
	grace.waits("finished")
	grace.sees("local:ada")
	grace.sees("local:grace: checked with the gateway")
	s.story(t, refund, "COMPLETED")
	require.Equal(t, 1, s.Gateway.Refunded(of))
	ada.goes("/ops/refunds/" + of)
	ada.sees("refunded")
}

func TestAQueueIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, c := opened(t)
	q := s.queueOf("usage_sync")
	ada := s.visits(t, c, "ada")
	ada.presses("way", "/ops/queues/"+q.ID)
	ada.presses("link", "^Pause")
	ada.refusesWithoutWhy("^Pause")
	ada.types("^Why", "the platform is being mended")
	ada.presses("button", "^Pause "+q.ID)
	ada.at("/ops/queues/" + q.ID)
	ada.sees("paused")
	ada.sees("the platform is being mended")
	ada.sees("local:ada")

	s.put(t, "usage-of-a-pause", "usage_sync", map[string]any{"subscription_id": "s-1"}, nil)
	ada.goes("/ops/")
	ada.sees("paused")
	require.Zero(t, s.Service.Applied("usage-of-a-pause"))

	ada.presses("way", "/ops/queues/"+q.ID)
	ada.presses("link", "^Resume")
	ada.types("^Why", "mended")
	ada.presses("button", "^Resume "+q.ID)
	s.story(t, "usage-of-a-pause", "COMPLETED")
	require.Equal(t, 1, s.Service.Applied("usage-of-a-pause"))
	ada.goes("/ops/")
	require.NotRegexp(t, "(?i)paused", ada.reads())
}

// refusesWithoutWhy presses a button whose form lacks its reason: the browser stays where it is.
func (p *tab) refusesWithoutWhy(name string) {
	p.t.Helper()
	before := p.path()
	p.focus("button", name)
	p.press(kb.Enter)
	valid := run(p, chromedp.Evaluate[bool](`document.querySelector("main form[method=post]").checkValidity()`))
	require.False(p.t, valid)
	p.at(before)
}

func TestAnIDOfAnyKindIsFoundInOneBox(t *testing.T) {
	t.Parallel()
	g := pagesOf(t)
	s := g.full
	ada := s.visits(t, g.chromium, "ada")
	var operations ops.List[deadletter.Operation]
	s.get(t, "/v1/ops/operations", &operations)
	letters := s.letters(t, s.queueOf("refund").ID, 3)
	entry := s.entry(t)
	for _, search := range []struct{ kind, id, leads string }{
		{"an event", event, "/ops/events/" + event},
		{"an order at PayNow", payNowOrder, "/ops/events/" + event},
		{"an order of the shop", shopOrder, "/ops/orders/" + shopOrder},
		{"a customer", buyersCustomer, "/ops/customers/" + buyersCustomer},
		{"a user", buyer, "/ops/accounts/" + string(ledger.UserPoints(buyer))},
		{"an account", string(ledger.UserPoints(buyer)), "/ops/accounts/" + string(ledger.UserPoints(buyer))},
		{"a correlation id", "dev-trial-subscription", "/ops/events/"},
		{"an ordering key", longID[:128], "/ops/events/" + longID[:128]},
		{"a subscription", usageOf, "/ops/subscriptions/" + usageOf},
		{"a dead letter", letters.Items[0].ID, "/ops/dead-letters/" + letters.Items[0].ID},
		{"an operation", operations.Items[0].ID, "/ops/operations/" + operations.Items[0].ID},
		{"a payment", payment, "/ops/refunds/" + payment},
		{"an entry", entry, "/ops/journal/entries/" + entry},
		{"an endpoint", "dev-partner", "/ops/endpoints/dev-partner"},
		{"a product", e2e.Product, "/ops/products/" + e2e.Product},
	} {
		t.Run(search.kind, func(t *testing.T) {
			ada.t = t
			ada.goes("/ops/")
			ada.types("^Search by any id", "  "+search.id+" ")
			ada.presses("button", "^Search$")
			ada.at("/ops/search")
			ada.presses("way", search.leads)
			ada.at(search.leads)
		})
	}
	ada.t = t
	ada.goes("/ops/search?q=nothing-has-this-id")
	ada.sees("looked through")
	var text string
	for _, kind := range []string{"event", "order", "customer"} {
		text = ada.reads()
		require.True(t, slices.Contains(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }), kind), fmt.Sprint(kind, ": ", text))
	}
}
