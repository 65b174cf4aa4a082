package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// failure is what fails of a part of a trial.
func failure(t *testing.T, part func(*run)) error {
	t.Helper()
	return (&run{ctx: t.Context(), seed: 1, out: io.Discard}).perform(part)
}

func judged(t *testing.T, verdicts ...*verdict) error {
	t.Helper()
	return failure(t, func(r *run) { judge(r, verdicts) })
}

func TestLossesDoublesAndDisorderAreCounted(t *testing.T) {
	t.Parallel()
	good := fate{claims: 1}
	follow := []*event{
		nil, {id: "1", key: "k1", cycle: 1}, {id: "2", key: "k1", cycle: 2}, {id: "3", key: "k1", cycle: 3},
	}
	for name, test := range map[string]struct {
		times               int
		fate                fate
		cycles              []int64
		lost, doubled, late int
	}{
		"one effect, recorded, is as it should be":           {1, good, nil, 0, 0, 0},
		"an answer that was lost with its worker is nothing": {1, fate{}, nil, 0, 0, 0},
		"no effect is a loss":                                {0, good, nil, 1, 0, 0},
		"an effect without a record is a loss, since it may be repeated": {
			1, fate{unrecorded: true}, nil, 1, 0, 0,
		},
		"two effects are a double":                          {2, good, nil, 0, 1, 0},
		"two deliveries that claim the effect are a double": {1, fate{claims: 2}, nil, 0, 1, 0},
		"a rising sequence is in order":                     {1, good, []int64{1, 2, 3}, 0, 0, 0},
		"so are repetitions, wherever they are":             {1, good, []int64{1, 1, 2, 1, 2, 3, 2}, 0, 0, 0},
		"a gap is counted as a loss":                        {1, good, []int64{1, 3}, 0, 0, 0},
		"one that comes after a later one is late":          {1, good, []int64{2, 1, 3}, 0, 0, 1},
		"so is each": {1, good, []int64{3, 1, 2}, 0, 0, 2},
		"one that comes late and then again is late once": {1, good, []int64{2, 1, 1}, 0, 0, 1},
	} {
		one := &event{id: "e1"}
		effects := slices.Repeat([]*event{one}, test.times)
		for _, cycle := range test.cycles {
			effects = append(effects, follow[cycle])
		}
		v := verdictOn(armTx, &arm{ordered: true}, []*event{one}, effects, map[*event]fate{one: test.fate})
		require.Equal(t, []int{1, test.lost, test.doubled, test.late},
			[]int{v.events, v.lost, v.doubled, v.outOfOrder}, name)
		require.Equal(t, v.ok(), len(v.broken) == 0, name)
		require.Equal(t, v.ok(), judged(t, v) == nil, name)
	}
	require.Error(t, judged(t, &verdict{name: armCheckThenAct, control: true, lost: 3}),
		"a control that doubles nothing")
	require.NoError(t, judged(t, &verdict{name: armCheckThenAct, control: true, doubled: 1},
		&verdict{name: armTx}))
}

// post posts to what is outside, signed.
func (o *outside) post(r *run, path, key, body string) {
	signer := filetest.Must(signature.NewSigner(signature.Generic, chaosSecret))(r)
	request := httptest.NewRequestWithContext(r.ctx, http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("Idempotency-Key", key)
	for name, value := range signer.Sign(key, []byte(body), time.Now()) {
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	o.Config.Handler.ServeHTTP(answer, request)
	require.Equal(r, http.StatusOK, answer.Code)
}

// entryOf is the entry of an event in the books.
func entryOf(r *run, e *event) store.Write {
	writes, err := ledger.Post(ledger.Entry{
		Tenant: "default", EventID: e.id, Kind: ledger.KindJournal, Period: ledger.PeriodOf(happened),
		OccurredAt: happened, PostedAt: happened,
		Lines: []ledger.Line{
			{Account: "cash", Currency: currency, Debit: cents}, {Account: "sales", Currency: currency, Credit: cents},
		},
	})
	r.must(err)
	return writes[0]
}

// What an arm counts besides: nothing here has a record, so that each of its own events is lost.
func TestWhatIsWrongWithAnArmIsCounted(t *testing.T) {
	t.Parallel()
	posts := func(r *run, p *plan, _ *outside, b *standin.Broker, db store.Store) {
		for _, message := range []struct{ id, event string }{
			{"m1", p.events[0].id}, {"m2", p.events[1].id}, {"m3", p.events[1].id},
		} {
			data := fmt.Appendf(nil, `{"id":%q,"data":{"event_id":%q}}`, message.id, message.event)
			r.must(filetest.ErrorOf(b.Publish(r.ctx, posted, contract.Message{Data: data})))
		}
		storetest.Put(r, db, entryOf(r, p.events[0]), entryOf(r, p.events[1]))
	}
	seals := func(r *run, db store.Store) {
		sealer := seal.Sealer{Store: db, Origins: sealtest.Trusting{}, Now: time.Now}
		r.must(filetest.ErrorOf(sealer.Run(r.ctx)))
	}
	for name, test := range map[string]struct {
		arm     string
		happens func(*run, *plan, *outside, *standin.Broker, store.Store)
		want    [][3]int // lost, doubled and out of order, of the arm and of what it tells
	}{
		"messages of the outbox: one never published, one published twice, and late": {
			armTxOrdered, func(r *run, p *plan, _ *outside, b *standin.Broker, _ store.Store) {
				for _, message := range []struct {
					id string
					of *event
				}{{"m2", p.events[1]}, {"m1", p.events[0]}, {"m1", p.events[0]}, {"m2-again", p.events[1]}} {
					data := fmt.Appendf(nil, `{"id":%q,"payload":{"event_id":%q}}`, message.id, message.of.id)
					_, err := b.Publish(r.ctx, outbox, contract.Message{Data: data, OrderingKey: message.of.key})
					r.must(err)
				}
			}, [][3]int{{9, 0, 0}, {7, 1, 1}},
		},
		"a payment that is refunded twice, for each of its events": {
			armRefunds, func(r *run, p *plan, o *outside, _ *standin.Broker, _ store.Store) {
				for _, e := range []*event{p.events[0], p.events[perPayment], p.events[perPayment], p.events[perPayment+1]} {
					o.post(r, standin.RefundsPath, e.id, fmt.Sprintf(`{"event_id":%q,"action":"refund","payment_id":%q}`,
						e.id, e.key))
				}
			}, [][3]int{{9, perPayment, 0}},
		},
		"an attempt that posts again without asking": {
			armLeasedOrdered, func(r *run, p *plan, o *outside, _ *standin.Broker, _ store.Store) {
				for _, e := range []*event{p.events[0], p.events[1], p.events[1]} {
					key := handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)
					o.post(r, effectPost.Path, key,
						fmt.Sprintf(`{"event_id":%q,"source_event_id":%q,"action":"a","subscription_id":"s"}`, key, e.id))
				}
			}, [][3]int{{9, 1, 0}},
		},
		"entries that nobody has sealed": {armJournal, posts, [][3]int{{9, 0, 0}, {7, 1, 0}, {2, 0, 0}}},
		"entries that are sealed": {
			armJournal, func(r *run, p *plan, _ *outside, b *standin.Broker, db store.Store) {
				posts(r, p, nil, b, db)
				seals(r, db)
			}, [][3]int{{9, 0, 0}, {7, 1, 0}, {0, 0, 0}},
		},
		"an entry that was changed": {
			armJournal, func(r *run, p *plan, _ *outside, b *standin.Broker, db store.Store) {
				posts(r, p, nil, b, db)
				seals(r, db)
				more := map[string]int64{"more": 1}
				storetest.Put(r, db, store.Increment(entryOf(r, p.events[0]).Key, more, nil))
			}, [][3]int{{9, 0, 0}, {7, 1, 0}, {0, 1, 0}},
		},
	} {
		require.NoError(t, failure(t, func(r *run) {
			of := filetest.Must(chosen(test.arm))(r)
			db := r.temporary()
			o, b, p := newOutside(r), newBroker(r), draw(r, of, 9)
			o.mend()
			test.happens(r, p, o, b, db)
			verdicts := count(r, db, o, b, &e2e.Log{}, p, of)
			require.Equal(r, test.want, filetest.Map(verdicts, func(v *verdict) [3]int {
				return [3]int{v.lost, v.doubled, v.outOfOrder}
			}), name)
		}))
	}
}

func TestAPlanDependsOnItsSeedAlone(t *testing.T) {
	t.Parallel()
	planned := func(seed uint64) (p *plan) {
		require.NoError(t, (&run{ctx: t.Context(), seed: seed, out: io.Discard}).perform(func(r *run) {
			p = draw(r, arms, 4000)
		}))
		return p
	}
	p := planned(7)
	require.True(t, reflect.DeepEqual(p, planned(7)),
		"require.Equal would take minutes to show where they differ")
	require.False(t, reflect.DeepEqual(p, planned(8)))

	published, highest := map[*event]int{}, map[string]int64{}
	for _, m := range p.publishes {
		if m.arm.ordered {
			key := m.arm.name + m.key
			require.LessOrEqual(t, m.cycle, highest[key]+1, "no event comes before the one it waits for")
			highest[key] = max(highest[key], m.cycle)
		}
		published[m.event]++
	}
	for _, e := range p.events {
		require.Positive(t, published[e], e.id)
	}
	require.InDelta(t, 2.3, float64(len(p.publishes))/float64(len(p.events)), 0.15)
}
