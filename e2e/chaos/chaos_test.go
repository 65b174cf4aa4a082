package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/e2e/chaos/arm"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := verdict{name: arm.Tx}
			v.take("e1", test.fate)
			require.Equal(t, []int{1, test.lost, test.doubled}, []int{v.events, v.lost, v.doubled})
			require.Equal(t, v.ok(), len(v.broken) == 0)
			require.Equal(t, v.ok(), judge(io.Discard, []verdict{v}, arm.All) == nil)
		})
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := verdict{name: arm.TxOrdered, ordered: true}
			v.sequence("k1", test.cycles)
			require.Equal(t, test.want, v.outOfOrder)
			require.Equal(t, v.ok(), judge(io.Discard, []verdict{v}, arm.All) == nil)
		})
	}
}

func TestARunWhoseControlDoublesNothingFails(t *testing.T) {
	t.Parallel()
	require.Error(t, judge(io.Discard, []verdict{{name: arm.CheckThenAct, lost: 3}}, arm.All))
	require.NoError(t, judge(io.Discard, []verdict{{name: arm.CheckThenAct, doubled: 1}, {name: arm.Tx}}, arm.All))
}

func TestTheOutboxIsCountedByItsMessages(t *testing.T) {
	t.Parallel()
	p := draw(1, []arm.Arm{{Name: arm.TxOrdered, Ordered: true}}, 3)
	require.Len(t, p.events, 3)
	a, b, c := p.events[0], p.events[1], p.events[2]
	v := outboxVerdict(map[string][]emission{a.key: {
		{"m2", b.id, b.cycle}, {"m1", a.id, a.cycle}, {"m1", a.id, a.cycle}, {"m2-again", b.id, b.cycle},
	}}, p)
	require.Equal(t, []int{3, 1, 1, 1}, []int{v.events, v.lost, v.doubled, v.outOfOrder}, "%s was never told", c.id)
}

func TestAPaymentThatIsRefundedTwiceIsCounted(t *testing.T) {
	t.Parallel()
	arms := []arm.Arm{{Name: arm.Refunds, Money: true}}
	p := draw(1, arms, 3*perPayment)
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	o, err := newOutside(1, listener, nil)
	require.NoError(t, err)
	o.calm()
	signer, err := signature.NewSigner(signature.Generic, arm.Secret)
	require.NoError(t, err)
	for _, e := range []*event{p.events[0], p.events[perPayment], p.events[perPayment], p.events[perPayment+1]} {
		body := fmt.Sprintf(`{"event_id":%q,"action":"refund","payment_id":%q}`, e.id, e.key)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, standin.RefundsPath, strings.NewReader(body))
		request.Header.Set("Idempotency-Key", e.id)
		for name, value := range signer.Sign(e.id, []byte(body), time.Now()) {
			request.Header.Set(name, value)
		}
		answer := httptest.NewRecorder()
		o.server.Handler.ServeHTTP(answer, request)
		require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	}
	verdicts, err := count(t.Context(), db, o, &e2e.Log{}, p, arms)
	require.NoError(t, err)
	require.Len(t, verdicts, 1)
	require.Equal(t, perPayment, verdicts[0].doubled, "the events of the second payment alone: %v", verdicts[0].broken)
	require.Equal(t, 3*perPayment, verdicts[0].lost, "nothing here has a record, or a document of its refund")
	require.Error(t, judge(io.Discard, verdicts, arms))
}

func TestEntriesThatAreNotSealedOrWereChangedAreCounted(t *testing.T) {
	t.Parallel()
	arms := []arm.Arm{{Name: arm.Journal, Journal: true}}
	p := draw(1, arms, 3)
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	counted := func() (lost, doubled []int) {
		t.Helper()
		told := map[string]map[string]bool{p.events[0].id: {"m1": true}, p.events[1].id: {"m2": true, "m3": true}}
		verdicts, err := count(t.Context(), db, &outside{told: told}, &e2e.Log{}, p, arms)
		require.NoError(t, err)
		require.Len(t, verdicts, 3)
		for _, v := range verdicts {
			lost, doubled = append(lost, v.lost), append(doubled, v.doubled)
		}
		return lost, doubled
	}
	entry := func(event *event) store.Write {
		t.Helper()
		writes, err := ledger.Post(ledger.Entry{
			Tenant: "default", EventID: event.id, Kind: ledger.KindJournal, Period: ledger.PeriodOf(happened), OccurredAt: happened, PostedAt: happened,
			Lines: []ledger.Line{{Account: "cash", Currency: arm.Currency, Debit: arm.Cents}, {Account: "sales", Currency: arm.Currency, Credit: arm.Cents}},
		})
		require.NoError(t, err)
		return writes[0]
	}
	_, err = db.Commit(t.Context(), []store.Write{entry(p.events[0]), entry(p.events[1])})
	require.NoError(t, err)
	lost, doubled := counted()
	require.Equal(t, []int{3, 1, 2}, lost, "no event has a record, one was not told of, two entries have no seal")
	require.Equal(t, []int{0, 1, 0}, doubled, "one was told of twice")

	_, err = seal.Sealer{Store: db, Origins: sealtest.Trusting{}, Now: time.Now}.Run(t.Context())
	require.NoError(t, err)
	_, doubled = counted()
	require.Equal(t, []int{0, 1, 0}, doubled)
	key := entry(p.events[0]).Key
	_, err = db.Commit(t.Context(), []store.Write{store.Increment(key, map[string]int64{"more": 1}, nil)})
	require.NoError(t, err)
	_, doubled = counted()
	require.Equal(t, []int{0, 1, 1}, doubled, "verification names the entry")
}

func TestAPlanDependsOnItsSeedAlone(t *testing.T) {
	t.Parallel()
	const events = 4000
	p, again, another := draw(7, arm.All, events), draw(7, arm.All, events), draw(8, arm.All, events)
	require.Equal(t, p, again)
	require.NotEqual(t, p.single, another.single)

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
	total := 0
	for _, e := range p.events {
		require.Positive(t, deliveries[e], e.id)
		total += deliveries[e]
	}
	require.InDelta(t, 2.3, float64(total)/float64(len(p.events)), 0.15)
}
