package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// failure is what fails of a part of a trial.
func failure(t *testing.T, part func(*run)) error {
	t.Helper()
	return (&run{ctx: t.Context(), seed: 1, out: io.Discard}).end(part)
}

func judged(t *testing.T, verdicts ...verdict) error {
	t.Helper()
	return failure(t, func(r *run) { judge(r, verdicts) })
}

func TestLossesAndDoublesAreCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fate          fate
		lost, doubled int
	}{
		"one effect, recorded, is as it should be":                       {fate{times: 1, claims: 1}, 0, 0},
		"an answer that was lost with its worker is nothing":             {fate{times: 1}, 0, 0},
		"no effect is a loss":                                            {fate{claims: 1}, 1, 0},
		"an effect without a record is a loss, since it may be repeated": {fate{times: 1, unrecorded: true}, 1, 0},
		"two effects are a double":                                       {fate{times: 2, claims: 1}, 0, 1},
		"two deliveries that claim the effect are a double":              {fate{times: 1, claims: 2}, 0, 1},
	} {
		v := verdict{name: armTx}
		v.take("e1", test.fate)
		require.Equal(t, []int{1, test.lost, test.doubled}, []int{v.events, v.lost, v.doubled}, name)
		require.Equal(t, v.ok(), len(v.broken) == 0, name)
		require.Equal(t, v.ok(), judged(t, v) == nil, name)
	}
}

func TestEventsOutOfOrderAreCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cycles []int64
		want   int
	}{
		"nothing":                            {nil, 0},
		"a rising sequence":                  {[]int64{1, 2, 3}, 0},
		"repetitions, wherever they are":     {[]int64{1, 1, 2, 1, 2, 3, 2}, 0},
		"a gap, which is counted as a loss":  {[]int64{1, 3}, 0},
		"one that comes after a later one":   {[]int64{2, 1, 3}, 1},
		"each that comes after a later one":  {[]int64{3, 1, 2}, 2},
		"one that comes late and then again": {[]int64{2, 1, 1}, 1},
	} {
		v := verdict{name: armTxOrdered, ordered: true}
		v.sequence("k1", test.cycles)
		require.Equal(t, test.want, v.outOfOrder, name)
		require.Equal(t, v.ok(), judged(t, v) == nil, name)
	}
}

func TestAChaosWhoseControlDoublesNothingFails(t *testing.T) {
	t.Parallel()
	require.Error(t, judged(t, verdict{name: armCheckThenAct, control: true, lost: 3}))
	require.NoError(t, judged(t, verdict{name: armCheckThenAct, control: true, doubled: 1}, verdict{name: armTx}))
}

// planned is a plan of one arm alone, with an empty store and everything outside, which does not fail.
func planned(r *run, name string, events int) (p *plan, of []*arm, db store.Store, o *outside) {
	of, err := chosen(name)
	r.must(err)
	documents, err := standin.OpenTemporaryStore(filepath.Join(r.TempDir(), "store.db"))
	r.must(err)
	r.Cleanup(func() { r.must(documents.Close()) })
	o = newOutside(r, nil)
	o.endFailures()
	return draw(1, of, events), of, documents, o
}

func TestTheOutboxIsCountedByItsMessages(t *testing.T) {
	t.Parallel()
	require.NoError(t, failure(t, func(r *run) {
		p, of, db, o := planned(r, armTxOrdered, 3)
		for _, told := range []struct {
			id string
			of *event
		}{{"m2", p.events[1]}, {"m1", p.events[0]}, {"m1", p.events[0]}, {"m2-again", p.events[1]}} {
			data := fmt.Appendf(nil, `{"id":%q,"payload":{"event_id":%q,"cycle":%d}}`, told.id, told.of.id, told.of.cycle)
			o.published[toldTopic] = append(o.published[toldTopic], contract.Message{Data: data, OrderingKey: told.of.key})
		}
		v := count(r, db, gather(r, db, o, &workers{}, p), p, of)[1]
		require.Equal(r, []int{3, 1, 1, 1}, []int{v.events, v.lost, v.doubled, v.outOfOrder}, "the third was never told")
	}))
}

// post posts to what is outside, signed, and returns the status of the answer.
func (o *outside) post(r *run, path, key, attempt, body string) int {
	signer, err := signature.NewSigner(signature.Generic, chaosSecret)
	r.must(err)
	request := httptest.NewRequestWithContext(r.ctx, http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set(attemptHeader, attempt)
	for name, value := range signer.Sign(key, []byte(body), time.Now()) {
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	o.Config.Handler.ServeHTTP(answer, request)
	return answer.Code
}

func TestAPaymentThatIsRefundedTwiceIsCounted(t *testing.T) {
	t.Parallel()
	require.NoError(t, failure(t, func(r *run) {
		p, of, db, o := planned(r, armRefunds, 3*perPayment)
		for _, e := range []*event{p.events[0], p.events[perPayment], p.events[perPayment], p.events[perPayment+1]} {
			body := fmt.Sprintf(`{"event_id":%q,"action":"refund","payment_id":%q}`, e.id, e.key)
			require.Equal(r, http.StatusOK, o.post(r, standin.RefundsPath, e.id, "1", body))
		}
		v := count(r, db, gather(r, db, o, &workers{}, p), p, of)[0]
		require.Equal(r, perPayment, v.doubled, "the events of the second payment alone: %v", v.broken)
		require.Equal(r, 3*perPayment, v.lost, "nothing here has a record, or a document of its refund")
		require.Error(r, judged(t, v))
	}))
}

func TestAnAttemptThatPostsAgainWithoutAskingIsCounted(t *testing.T) {
	t.Parallel()
	require.NoError(t, failure(t, func(r *run) {
		p, of, db, o := planned(r, armLeasedOrdered, 3)
		for i, attempt := range []string{"1", "2"} {
			e := p.events[i]
			key := handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)
			body := fmt.Sprintf(`{"event_id":%q,"source_event_id":%q,"action":"a","subscription_id":"s"}`, key, e.id)
			require.Equal(r, http.StatusOK, o.post(r, effectPost.Path, key, attempt, body))
		}
		v := count(r, db, gather(r, db, o, &workers{}, p), p, of)[0]
		require.Equal(r, []int{3, 1}, []int{v.lost, v.doubled}, "nothing has a record; the second has not asked")
	}))
}

func TestEntriesThatAreNotSealedOrWereChangedAreCounted(t *testing.T) {
	t.Parallel()
	require.NoError(t, failure(t, func(r *run) {
		p, of, db, o := planned(r, armJournal, 3)
		for id, i := range map[string]int{"m1": 0, "m2": 1, "m3": 1} {
			data := fmt.Appendf(nil, `{"id":%q,"data":{"event_id":%q}}`, id, p.events[i].id)
			o.published[postedTopic] = append(o.published[postedTopic], contract.Message{Data: data})
		}
		counted := func() (lost, doubled []int) {
			for _, v := range count(r, db, gather(r, db, o, &workers{}, p), p, of) {
				lost, doubled = append(lost, v.lost), append(doubled, v.doubled)
			}
			return lost, doubled
		}
		entry := func(event *event) store.Write {
			writes, err := ledger.Post(ledger.Entry{
				Tenant: "default", EventID: event.id, Kind: ledger.KindJournal, Period: ledger.PeriodOf(happened), OccurredAt: happened, PostedAt: happened,
				Lines: []ledger.Line{{Account: "cash", Currency: currency, Debit: cents}, {Account: "sales", Currency: currency, Credit: cents}},
			})
			r.must(err)
			return writes[0]
		}
		_, err := db.Commit(r.ctx, []store.Write{entry(p.events[0]), entry(p.events[1])})
		r.must(err)
		lost, doubled := counted()
		require.Equal(r, []int{3, 1, 2}, lost, "no event has a record, one was not told of, two entries have no seal")
		require.Equal(r, []int{0, 1, 0}, doubled, "one was told of twice")

		_, err = seal.Sealer{Store: db, Origins: sealtest.Trusting{}, Now: time.Now}.Run(r.ctx)
		r.must(err)
		_, doubled = counted()
		require.Equal(r, []int{0, 1, 0}, doubled)
		_, err = db.Commit(r.ctx, []store.Write{store.Increment(entry(p.events[0]).Key, map[string]int64{"more": 1}, nil)})
		r.must(err)
		_, doubled = counted()
		require.Equal(r, []int{0, 1, 1}, doubled, "verification names the entry")
	}))
}

func TestAPlanDependsOnItsSeedAlone(t *testing.T) {
	t.Parallel()
	const events = 4000
	p := draw(7, arms, events)
	require.Equal(t, p, draw(7, arms, events))
	require.NotEqual(t, p.single, draw(8, arms, events).single)

	deliveries := map[*event]int{}
	for _, d := range p.single {
		deliveries[d.event]++
	}
	for _, walk := range p.byKey {
		highest := int64(0)
		for _, d := range walk {
			require.LessOrEqual(t, d.cycle, highest+1, "no event comes before the one it waits for")
			highest = max(highest, d.cycle)
			deliveries[d.event]++
		}
	}
	for _, e := range p.events {
		require.Positive(t, deliveries[e], e.id)
	}
	require.InDelta(t, 2.3, float64(p.deliveries())/float64(len(p.events)), 0.15)
}
