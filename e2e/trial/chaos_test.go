package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// failure returns the errors of a part of a trial.
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
		"one effect with a record is correct":        {1, good, nil, 0, 0, 0},
		"a killed worker need not claim its effect":  {1, fate{}, nil, 0, 0, 0},
		"no effect is a loss":                        {0, good, nil, 1, 0, 0},
		"an effect without a record may be repeated": {1, fate{unrecorded: true}, nil, 1, 0, 0},
		"two effects are a double":                   {2, good, nil, 0, 1, 0},
		"two deliveries that claim are a double":     {1, fate{claims: 2}, nil, 0, 1, 0},
		"a rising sequence is in order":              {1, good, []int64{1, 2, 3}, 0, 0, 0},
		"repetitions anywhere are in order":          {1, good, []int64{1, 1, 2, 1, 2, 3, 2}, 0, 0, 0},
		"a gap is not out of order":                  {1, good, []int64{1, 3}, 0, 0, 0},
		"an event after a later one is out of order": {1, good, []int64{2, 1, 3}, 0, 0, 1},
		"two events after a later one are two":       {1, good, []int64{3, 1, 2}, 0, 0, 2},
		"an event twice after a later one is one":    {1, good, []int64{2, 1, 1}, 0, 0, 1},
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
	control := &verdict{name: armCheckThenAct, control: true, lost: 3}
	require.Error(t, judged(t, control), "a control that doubles nothing")
	control.doubled = 1
	require.NoError(t, judged(t, control, &verdict{name: armTx}))
}

// post sends a signed request.
func (o *outside) post(r *run, path, key, body string) {
	signer := filetest.Must(signature.NewSigner(signature.Generic, chaosSecret))(r)
	headers := signer.Sign(key, []byte(body), time.Now())
	headers["Idempotency-Key"] = key
	answer := filetest.Must(e2e.Do(e2e.Request(r.ctx, http.MethodPost, o.URL+path, []byte(body), headers)))(r)
	require.Equal(r, http.StatusOK, answer.Status)
}

// entryOf is the entry of an event in the books.
func entryOf(r *run, e *event) store.Write {
	sale := ledgertest.Sale("default", e.id, ledger.PeriodOf(happened), cents, happened)
	return filetest.Must(ledger.Post(sale))(r)[0]
}

// scene is a short plan of one arm, with all that it may affect.
type scene struct {
	*run
	events []*event
	*outside
	broker *standin.Broker
	store  store.Store
}

func (s scene) publish(topic, key, body string, values ...any) {
	m := contract.Message{Data: fmt.Appendf(nil, body, values...), OrderingKey: key}
	s.must(filetest.ErrorOf(s.broker.Publish(s.ctx, topic, m)))
}

// postJournal posts two entries, and publishes one message for the first and two for the second.
func (s scene) postJournal() {
	for id, e := range map[string]*event{"m1": s.events[0], "m2": s.events[1], "m3": s.events[1]} {
		s.publish(posted, "", `{"id":%q,"data":{"event_id":%q}}`, id, e.id)
	}
	storetest.Put(s, s.store, entryOf(s.run, s.events[0]), entryOf(s.run, s.events[1]))
}

func (s scene) sealJournal() {
	s.postJournal()
	sealtest.Seal(s, s.store, sealtest.Trusting{}, time.Now())
}

// No event here has a record, so that each of the arm's own nine is lost.
func TestLossesDoublesAndDisorderOfAnArmAreCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arm     string
		happens func(scene)
		want    [][3]int // lost, doubled and out of order, of the arm and of its messages and seals
	}{
		"messages of the outbox: one never published, one published twice, and late": {
			armTxOrdered, func(s scene) {
				for _, id := range []string{"1", "0", "0", "1-again"} {
					of := s.events[id[0]-'0']
					s.publish(outbox, of.key, `{"id":%q,"payload":{"event_id":%q}}`, id, of.id)
				}
			}, [][3]int{{9, 0, 0}, {7, 1, 1}},
		},
		"a payment that is refunded twice, for each of its events": {
			armRefunds, func(s scene) {
				for _, i := range []int{0, perPayment, perPayment, perPayment + 1} {
					e := s.events[i]
					refund := fmt.Sprintf(`{"event_id":%q,"action":"refund","payment_id":%q}`, e.id, e.key)
					s.post(s.run, standin.RefundsPath, e.id, refund)
				}
			}, [][3]int{{9, perPayment, 0}},
		},
		"an attempt that posts again without reconciling": {
			armLeasedOrdered, func(s scene) {
				for _, i := range []int{0, 1, 1} {
					id := s.events[i].id
					key := handler.CalleeKey(armLeasedOrdered, contract.DefaultTenant, id)
					s.post(s.run, effectPost.Path, key,
						fmt.Sprintf(`{"event_id":%q,"source_event_id":%q,"action":"a","subscription_id":"s"}`, key, id))
				}
			}, [][3]int{{9, 1, 0}},
		},
		"entries that nobody has sealed": {
			armJournal, scene.postJournal, [][3]int{{9, 0, 0}, {7, 1, 0}, {2, 0, 0}},
		},
		"entries that are sealed": {armJournal, scene.sealJournal, [][3]int{{9, 0, 0}, {7, 1, 0}, {0, 0, 0}}},
		"an entry that was changed": {
			armJournal, func(s scene) {
				s.sealJournal()
				more := map[string]int64{"more": 1}
				storetest.Put(s, s.store, store.Increment(entryOf(s.run, s.events[0]).Key, more, nil))
			}, [][3]int{{9, 0, 0}, {7, 1, 0}, {0, 1, 0}},
		},
	} {
		require.NoError(t, failure(t, func(r *run) {
			of := filetest.Must(chosen(test.arm))(r)
			p := draw(r, of, 9)
			s := scene{r, p.events, newOutside(r), newBroker(r), r.temporary()}
			s.mend()
			test.happens(s)
			verdicts := count(r, s.store, s.outside, s.broker, &e2e.Log{}, p, of)
			require.Equal(r, test.want, filetest.Map(verdicts, func(v *verdict) [3]int {
				return [3]int{v.lost, v.doubled, v.outOfOrder}
			}), name)
		}))
	}
}

func TestAPlanDependsOnItsSeedAlone(t *testing.T) {
	t.Parallel()
	planned := func(seed uint64) (p *plan) {
		r := &run{ctx: t.Context(), seed: seed, out: io.Discard}
		require.NoError(t, r.perform(func(r *run) { p = draw(r, arms, 4000) }))
		return p
	}
	p := planned(7)
	require.True(t, reflect.DeepEqual(p, planned(7)), "require.Equal would take minutes to show a difference")
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

func TestEachArmsMessagesAreReadByItsQueue(t *testing.T) {
	t.Parallel()
	for _, a := range arms {
		q, sent := a.queue(), (&run{}).message(a.body(&event{id: "e1", key: "key-0001"}), "key-0001")
		body, attributes, err := catalogtest.Shipped().Contracts.Receive(q.Contract, q.OrderingKey, sent, happened)
		require.NoError(t, err, a.name)
		require.NoError(t, errors.Join(body.Validate(), body.CheckAttributes(attributes)), a.name)
	}
}
