package pages_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
)

// aQueue is a queue of the catalog with dead letters, which need a second person or do not.
func aQueue(t *testing.T, fourEyes bool) catalog.Queue {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, q := range c.Queues {
		if q.FourEyes == fourEyes && !q.DeadLetter.Drop && q.Enabled {
			return q
		}
	}
	require.Fail(t, "the catalog has no such queue")
	return catalog.Queue{}
}

// dies keeps dead letters of a queue, a minute apart, the last of them at noon. It returns their ids.
func (s *shop) dies(t *testing.T, q catalog.Queue, reasons ...string) (ids []string) {
	t.Helper()
	for n, reason := range reasons {
		kept := noon.Add(time.Duration(n-len(reasons)+1) * time.Minute)
		m := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{
			"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": fmt.Sprint("u", n%2), "dead_letter_reason": reason,
			"source_message_id": fmt.Sprint(100 + n), "delivery_attempts": "1", "dead_lettered_at": kept.Format(time.RFC3339),
		}}
		_, err := deadletter.Keep(t.Context(), s.store, q, m, fmt.Sprint(900+n), kept)
		require.NoError(t, err)
		ids = append(ids, deadletter.ItemID(q, fmt.Sprint(100+n), m))
	}
	return ids
}

// refuses asks for a page, and requires that it says what is wrong, and where to go on.
func (s *shop) refuses(t *testing.T, path string, texts ...string) {
	t.Helper()
	answer := s.ask(t, path, nil)
	require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, answer.Code)
	for _, text := range texts {
		require.Contains(t, answer.Body.String(), text, path)
	}
}

func TestDeadLettersAreGroupedFilteredAndTurned(t *testing.T) {
	t.Parallel()
	s, q := openShop(t, partner{}), aQueue(t, false)
	s.says(t, "/ops/dead-letters", "No open dead letter is in this list.")
	ids := s.dies(t, q, append([]string{"rare"}, strings.Split(strings.Repeat("often ", 60), " ")[:60]...)...)
	page := s.says(t, "/ops/dead-letters", "Open, by reason", ">often</a>", ">rare</a>", ">60</td>", `rel="next"`, "Name one queue")
	require.NotContains(t, page, `type="checkbox"`, "an operation is of one queue")
	require.NotContains(t, page, ids[0], "it is on the second page")
	page = s.says(t, "/ops/dead-letters?queue="+q.ID+"&reason=rare", ids[0], `value="rare"`, "Choose dead letter "+ids[0])
	require.Contains(t, page, "/ops/dead-letters/replay?queue="+q.ID+"&amp;reason=rare", "all that match")
	require.NotContains(t, page, ids[1])
	s.says(t, "/ops/dead-letters?queue="+q.ID+"&state=discarded", "No dead letter is in this list.")
	s.says(t, "/ops/dead-letters?queue="+q.ID+"&key=%20u1%20", ids[1])
	s.refuses(t, "/ops/dead-letters?state=all", "Of all queues the list has one state")
	s.says(t, "/ops/dead-letters/"+ids[0], "rare", `href="/ops/events/e0?queue=`+q.ID+`"`, "Nobody has dealt with it.", "/payload\"")
	require.Equal(t, http.StatusNotFound, s.ask(t, "/ops/dead-letters/nothing", nil).Code)
}

func TestTheFormOfAReplaySaysHowManyAndWhatWouldHappen(t *testing.T) {
	t.Parallel()
	s, q := openShop(t, partner{}), aQueue(t, false)
	ids := s.dies(t, q, "a", "b", "b", "a")
	form := "/ops/dead-letters/replay?queue=" + q.ID
	page := s.says(t, form, "Replay 4 dead letters of "+q.ID, `name="expect" value="4"`, "a 2", "b 2", "credited", `name="rate"`, "required")
	require.Equal(t, 4, strings.Count(page, `<span class="status status-ok">processed</span>`), "each was tried")
	s.says(t, form+"&chosen=yes&item="+ids[0]+"&item="+ids[2]+"&item=gone", "Replay 2 dead letters", "3 chosen")
	s.says(t, "/ops/dead-letters/complete?queue="+q.ID, "Complete by hand 4 dead letters", "completed by hand and stay on record")
	s.refuses(t, form+"&chosen=yes", "Choose at least one dead letter", `href="/ops/dead-letters?queue=`+q.ID+`"`)
	s.says(t, form+"&reason=none", "No open dead letter matches any more.")
	s.says(t, form+"&since=90s", "Replay 2 dead letters", `name="since" value="2026-11-22T11:58:30Z"`)
	s.refuses(t, form+"&since=yesterday", "Since and until are a time")
	s.says(t, "/ops/dead-letters/discard?queue="+q.ID, "Discard 4 dead letters")

	for name, test := range map[string]struct {
		form url.Values
		want string
	}{
		"without a reason":                {url.Values{"expect": {"4"}, "rate": {"50"}, "why": {" "}}, "Say why"},
		"of another number than was seen": {url.Values{"expect": {"3"}, "rate": {"50"}, "why": {"ticket 7"}}, "4 items match now, not 3"},
		"with a reason that is personal":  {url.Values{"expect": {"4"}, "rate": {"50"}, "why": {"for jo@example.com"}}, "personal data"},
		"faster than is allowed":          {url.Values{"expect": {"4"}, "rate": {"5000"}, "why": {"ticket 7"}}, "the rate must be"},
		"at no rate":                      {url.Values{"expect": {"4"}, "rate": {"fast"}, "why": {"ticket 7"}}, "whole number"},
	} {
		refused := s.ask(t, form, test.form)
		require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusConflict}, refused.Code, name)
		require.Contains(t, refused.Body.String(), test.want, name)
		require.Contains(t, refused.Body.String(), `name="expect" value="4"`, "the form again, with what matches now")
	}
	s.says(t, "/ops/operations", "No operation is in this list.")
}

func TestDeadLettersThatAreChosenAreReplayedAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	s, q := openShop(t, partner{}), aQueue(t, false)
	ids := s.dies(t, q, "a", "a", "a")
	at, page := s.send(t, "/ops/dead-letters/replay?queue="+q.ID+"&chosen=yes&item="+ids[0]+"&item="+ids[2], url.Values{"expect": {"2"}, "rate": {"50"}, "why": {"the product is set"}})
	require.Regexp(t, `^/ops/operations/id-\d+$`, at)
	for _, text := range []string{"finished", "2 of 2 done", "the product is set", "2 chosen", "still wait", ids[0], ids[2]} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, ids[1])
	require.Contains(t, page, `data-refresh`, "what becomes of them is still to come")
	s.says(t, "/ops/operations", `href="`+at+`"`, "2 of 2", "finished")
	s.says(t, "/ops/operations?progress=running", "No operation is in this list.")
	s.says(t, at+"?state=open", "It has dealt with none")
	s.says(t, "/ops/dead-letters/"+ids[0], "replayed", `href="`+at+`"`, "the product is set")
	s.says(t, "/ops/dead-letters?queue="+q.ID, ids[1])

	_, page = s.send(t, "/ops/dead-letters/discard?queue="+q.ID, url.Values{"expect": {"1"}, "why": {"a test"}})
	require.Contains(t, page, "1 of 1 done")
	require.NotContains(t, page, `data-refresh`, "nothing more comes of it")
	s.says(t, "/ops/dead-letters?queue="+q.ID+"&state=discarded", ids[1])

	ids = s.dies(t, q, "a", "a", "a", "a")
	s.says(t, "/ops/dead-letters/"+ids[3], "/ops/dead-letters/complete?item=")
	at, page = s.send(t, "/ops/dead-letters/complete?queue="+q.ID+"&item="+ids[3], url.Values{"expect": {"1"}, "why": {"paid back at the counter"}})
	require.Contains(t, page, "Complete by hand: 1 of "+q.ID)
	require.Contains(t, page, "1 of 1 done")
	s.says(t, "/ops/dead-letters?queue="+q.ID+"&state=completed", ids[3])
	s.says(t, "/ops/dead-letters/"+ids[3], "completed", "paid back at the counter", `href="`+at+`"`)
}

func TestAnOperationThatNeedsASecondPersonWaitsAndIsDecidedOnItsPage(t *testing.T) {
	t.Parallel()
	s, q := openShop(t, partner{}), aQueue(t, true)
	s.dies(t, q, "a", "a")
	s.says(t, "/ops/dead-letters/replay?queue="+q.ID, "need a second person")
	at, page := s.send(t, "/ops/dead-letters/replay?queue="+q.ID, url.Values{"expect": {"2"}, "rate": {"50"}, "why": {"ticket 7"}})
	for _, text := range []string{"waits for a second person", "0 of 2 done", "You have asked for it"} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, "/approve")
	s.says(t, "/ops/operations?progress=waiting_for_approval", `href="`+at+`"`)
	approval := url.Values{"expect": {"2"}, "why": {"checked"}}
	refused := s.ask(t, at+"/approve", approval)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Code)
	require.Contains(t, refused.Body.String(), "somebody else has to approve it")
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, at+"/cancel", url.Values{}).Code, "without a reason")
	s.says(t, at+"/cancel", "Cancel the replay of 2 of "+q.ID, `name="why"`)
	_, page = s.send(t, at+"/cancel", url.Values{"why": {"the wrong one"}})
	require.Contains(t, page, "cancelled")
	require.Contains(t, page, "the wrong one")
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, at+"/reject", url.Values{"why": {"w"}}).Code, "it is over")
	require.Equal(t, http.StatusNotFound, s.ask(t, "/ops/operations/nothing", nil).Code)
}

func TestTheSecondPersonSeesWhatTheFirstHasSeen(t *testing.T) {
	t.Parallel()
	s, q := openShop(t, partner{}), aQueue(t, true)
	ids := s.dies(t, q, "a", "b")
	seen := []string{"a 1", "b 1", "What would happen now", "credited", ids[0], ids[1]}
	s.says(t, "/ops/dead-letters/replay?queue="+q.ID, seen...)
	at, _ := s.send(t, "/ops/dead-letters/replay?queue="+q.ID, url.Values{"expect": {"2"}, "rate": {"50"}, "why": {"ticket 7"}})
	s.who = "bob"
	s.says(t, at, at+"/approve")
	s.says(t, at+"/approve", append(seen, "ticket 7", "local:ada", `name="expect" value="2"`, `name="why"`)...)
	for name, form := range map[string]url.Values{
		"without a reason": {"expect": {"2"}, "why": {" "}}, "of what was not seen": {"expect": {"3"}, "why": {"checked"}}, "of nothing said": {"why": {"checked"}},
	} {
		require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusConflict}, s.ask(t, at+"/approve", form).Code, name)
	}
	_, page := s.send(t, at+"/approve", url.Values{"expect": {"2"}, "why": {"checked"}})
	for _, text := range []string{"finished", "local:ada", "local:bob: checked"} {
		require.Contains(t, page, text)
	}
}
