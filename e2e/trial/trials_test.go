package main

import (
	"encoding/xml"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/emulator"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(standingVariable) != "" { // the load's process is the test's program
		main()
		return
	}
	os.Exit(m.Run())
}

// tried runs a trial, and returns its output.
func tried(t *testing.T, arguments string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, try(t.Context(), &out, strings.Fields(arguments)...), out.String())
	return out.String()
}

func TestALoadIsMeasuredAndPlotted(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "load.svg")
	said := tried(t, "load -rates 20,40 -for 1s -warm 0s -on 40 -bursts 20 -stall 300ms -plot "+plot)
	for _, row := range []string{"", ", 20 at once", ", a stall of 300ms", ", a typed decode too"} {
		require.Regexp(t, `(?m)^40/s`+row+` +[1-9]\d*/s`, said)
	}
	require.Regexp(t, `(?m)^20/s +[1-9]\d*/s`, said)
	require.NoError(t, xml.Unmarshal([]byte(filetest.Read(t, plot)), new(struct{})))
}

func TestAStallIsOverAfterTheLastSlowSecond(t *testing.T) {
	t.Parallel()
	of := traffic{lasts: 4 * time.Second, stall: time.Second}
	due := []time.Duration{0, 2 * time.Second, 3 * time.Second, 4 * time.Second}
	for slow := range due {
		took := make([]time.Duration, len(due))
		took[slow] = soon
		require.Equal(t, time.Duration(slow)*time.Second, of.recovered(due, took))
	}
}

// The times are not asserted: they depend on the machine.
func TestTheDrillEndsEachIncidentByTheRunbook(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the program")
	}
	t.Parallel()
	said := tried(t, "drill -stack dev")
	for _, i := range incidents(catalogtest.Shipped()) {
		require.Contains(t, said, "ALERT on "+i.queue)
		require.Regexp(t, `(?m)^`+i.name+`( +\d+\.\d){4} *$`, said)
	}
	require.Contains(t, said,
		`$ bin/billhook products set 502113004410000777 --points 500 --why 'sold since today'`)
}

func TestATrialRefusesAnUnknownNameOrValue(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, try(t.Context(), io.Discard, "drill", "-stack", "production"), "-stack")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chaos", "-arms", "tx,legs"), "legs")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chess"), "chaos")
}

func TestTheBooksAreProvenAndAChangeIsFound(t *testing.T) {
	t.Parallel()
	require.Contains(t, tried(t, "books -entries 40 -tenants 2"), "changed entries/")
}

func TestAnImportThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	due := time.Now()
	s := system{queue: catalog.Queue{ID: "q"}, ids: map[string]time.Time{"a": {}, "b": due}}
	key := func(id string) string { return handler.CalleeKey("q", contract.DefaultTenant, id) }
	a, b := key("a"), key("b")
	for name, handled := range map[string]map[string][]time.Time{
		"each is handled once": {a: {due}, b: {due}},
		"one is handled twice": {a: {due, due}, b: {due}},
		"one is lost":          {b: {due}},
		"one is handled early": {a: {due}, b: {due.Add(-time.Second)}},
		"one more is handled":  {a: {due}, b: {due}, "c": {due}},
	} {
		err := failure(t, func(r *run) { s.check(r, handled) })
		require.Equal(t, name == "each is handled once", err == nil, name)
	}
}

func TestASmallSaleIsSoldOutAndASmallSoakLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the services")
	}
	t.Parallel()
	emulatortest.Needs(t, filetest.ErrorOf(emulator.Find()))
	for says, arguments := range map[string]string{
		"OrderCancelled 55, OrderConfirmed 5, ": "flashsale -orders 60 -pieces 5 -kills-every 0",
		"credited ":                             "soak -seed 1 -events 60 -customers 5 -kills 1",
	} {
		t.Run(arguments, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, tried(t, arguments), says)
		})
	}
}

func TestASaleThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	m := &market{deployed: &deployed{catalog: catalogtest.Shipped()}, orders: 10, pieces: 2}
	good := m.wanted(2, 8)
	maps.Copy(good, counts{"OrderConfirmed": 2, "OrderCancelled": 8, "sold": 2})
	require.NoError(t, failure(t, func(r *run) { m.judge(r, good) }))
	for name, change := range map[string]counts{
		"one confirmed too many": {"OrderConfirmed": 1}, "one cancelled too few": {"OrderCancelled": -1},
		"one for no reason": {"cancelled without a reason": 1},
		"one that waits":    {"PaymentInitiated": 1}, "one lost": {"lost": 1},
		"one that passed a state twice": {"passed a state twice": 1}, "a piece left": {"available": 1},
		"a piece reserved": {"reserved": 1}, "a piece sold twice": {"sold": 1},
		"a buyer notified twice": {"notified twice": 1}, "a dead letter": {"dead letters": 1},
		"a buyer who was not notified": {"notification.email.order_cancelled": -1},
	} {
		found := maps.Clone(good)
		for what, n := range change {
			found.add(what, n)
		}
		require.Error(t, failure(t, func(r *run) { m.judge(r, found) }), name)
	}
}

func TestAnOrderBehindAForgottenProductIsNotLost(t *testing.T) {
	t.Parallel()
	tried(t, "behind -seed 1 -forgotten 3 -longest 1ms")
}

func TestWrongBalancesAreFound(t *testing.T) {
	t.Parallel()
	for points, broken := range map[int64]bool{0: true, 1000: false, 2000: true} {
		err := failure(t, func(r *run) {
			b := &billhook{run: r, store: r.temporary()}
			account := ledger.UserPoints("u").Key("default")
			storetest.Put(r, b.store, store.Increment(account, map[string]int64{"balance": 1000}, nil))
			r.none(b.wrongPoints(map[string]int64{"u": points}))
		})
		require.Equal(t, broken, err != nil, "%d: %v", points, err)
	}
}

func TestAShortRunMeasuresEveryTargetAndLosesNoPayment(t *testing.T) {
	t.Parallel()
	table := tried(t, "isolation -events 5 -rate 100 -rounds 1")
	for _, row := range besides() {
		require.Regexp(t, row.name+` +[1-9]`, table, "each got requests")
	}
}

func TestARowIsTheMedianOfItsRounds(t *testing.T) {
	t.Parallel()
	with, without := []figures{{7, 4, 8}, {7, 3, 3}, {7, 1000, 5}}, []figures{{7, 2, 4}, {7, 3, 3}, {7, 1, 1}}
	require.Equal(t, []any{"a target", "7", "4.0 ms", "x 2.00", "5.0 MB", "x 2.00"},
		compared("a target", with, without))
}
