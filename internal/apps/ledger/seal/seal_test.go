package seal_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 123456000, time.UTC)

// sale is the entry of an event.
func sale(tenant, event, period string, amount int64, after time.Duration) ledger.Entry {
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "ecommerce.order.completed", Rule: "sales", Period: period,
		OccurredAt: noon, PostedAt: noon.Add(after),
		Lines: []ledger.Line{
			{Account: "1200:receivable", Currency: "SGD", Debit: amount}, {Account: "4000:revenue", Currency: "SGD", Credit: amount - 1},
			{Account: "2200:tax", Currency: "SGD", Credit: 1},
		},
	}
}

func post(t *testing.T, s store.Committer, entries ...ledger.Entry) {
	t.Helper()
	for len(entries) > 0 {
		n := min(len(entries), store.MaxWrites)
		var writes []store.Write
		for _, entry := range entries[:n] {
			w, err := ledger.Post(entry)
			require.NoError(t, err)
			writes = append(writes, w...)
		}
		_, err := s.Commit(t.Context(), writes)
		require.NoError(t, err)
		entries = entries[n:]
	}
}

func sealer(s store.Store) seal.Sealer {
	return seal.Sealer{Store: s, Origins: sealtest.Trusting{}, Now: func() time.Time { return noon.Add(time.Hour) }}
}

func run(t *testing.T, s store.Store) seal.Sealed {
	t.Helper()
	done, err := sealer(s).Run(t.Context())
	require.NoError(t, err)
	return done
}

func findings(t *testing.T, from seal.Reader) []seal.Finding {
	t.Helper()
	var found []seal.Finding
	require.NoError(t, seal.Verifier{From: from, Origins: sealtest.Trusting{}}.All(t.Context(), func(f seal.Finding) { found = append(found, f) }))
	return found
}

// A seal is one commit; a run with nothing to do is one query.
func TestASealOf497EntriesIsOneCommit(t *testing.T) {
	t.Parallel()
	s := &storetest.Counter{Store: storetest.Open(t)}
	for tenant, n := range map[string]int{"big": 1200, "small": 3} {
		var entries []ledger.Entry
		for i := range n {
			entries = append(entries, sale(tenant, fmt.Sprint("e", i), "2026-11", 100, time.Duration(i)*time.Second))
		}
		post(t, s, entries...)
	}
	s.Gets.Store(0)
	s.Commits.Store(0)
	s.Queries.Store(0)
	s.Written.Store(0)
	require.Equal(t, seal.Sealed{Entries: 1203, Seals: 4}, run(t, s))
	require.EqualValues(t, 4, s.Commits.Load())
	require.EqualValues(t, 1203+4*3, s.Written.Load())
	require.EqualValues(t, 2, s.Gets.Load(), "the head of each tenant, once")
	require.EqualValues(t, 2+3+1, s.Queries.Load(), "two pages of what is open, and those of both tenants")
	s.Queries.Store(0)
	require.Equal(t, seal.Sealed{}, run(t, s))
	require.EqualValues(t, 1, s.Queries.Load())
	require.Empty(t, findings(t, s))
}

func TestASealHoldsEntriesInTheOrderInWhichTheyWerePosted(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "c", "2026-11", 30, 2*time.Second), sale("acme", "a", "2026-11", 10, 2*time.Second), sale("acme", "b", "2026-11", 20, time.Second))
	run(t, s)
	first, second := ledger.EntryID("acme", "a"), ledger.EntryID("acme", "c")
	if first > second {
		first, second = second, first
	}
	for i, id := range []string{ledger.EntryID("acme", "b"), first, second} {
		doc, err := s.Get(t.Context(), ledger.Key(id))
		require.NoError(t, err)
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		require.EqualValues(t, i, entry.Leaf)
		require.EqualValues(t, 1, entry.Seal)
		steps, err := seal.Around(t.Context(), s, entry)
		require.NoError(t, err)
		require.Equal(t, seal.Step{Account: "1200:receivable", Currency: "SGD", After: 60}, steps[0], "before and after the seal")
		same, err := seal.Unchanged(t.Context(), s, entry)
		require.NoError(t, err)
		require.True(t, same)
		entry.Leaf++
		same, err = seal.Unchanged(t.Context(), s, entry)
		require.NoError(t, err)
		require.False(t, same, "it is not what the seal has at another place")
	}
}

func TestASealHasItsTotalsAndTheHashOfTheSealBefore(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-10", 100, 0), sale("acme", "b", "2026-11", 200, 0))
	run(t, s)
	post(t, s, sale("acme", "c", "2026-11", 50, 0))
	run(t, s)
	seals, next, err := seal.List(t.Context(), s, "acme", 0, 10)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Len(t, seals, 2)
	newest, oldest := seals[0], seals[1]
	require.Equal(t, strings.Repeat("0", 64), oldest.Previous)
	require.Equal(t, oldest.Hash, newest.Previous)
	require.Equal(t, map[string]int64{"2026-10": 1, "2026-11": 2}, newest.Periods)
	require.Equal(t, map[string]seal.Totals{"2026-11": {
		"1200:receivable": {"SGD": {Debit: 250}}, "4000:revenue": {"SGD": {Credit: 248}}, "2200:tax": {"SGD": {Credit: 2}},
	}}, newest.Running)
	require.Equal(t, seal.Sum{Debit: 50}, newest.Totals["2026-11"]["1200:receivable"]["SGD"])
	require.NoError(t, newest.Check())

	// What is kept elsewhere is JSON, and says the same when it is read again.
	text, err := json.Marshal(newest)
	require.NoError(t, err)
	var kept seal.Seal
	require.NoError(t, json.Unmarshal(text, &kept))
	require.NoError(t, kept.Check())
	kept.Running["2026-11"]["2200:tax"]["SGD"] = seal.Sum{Credit: 3}
	require.ErrorIs(t, kept.Check(), seal.ErrBroken)

	seals, next, err = seal.List(t.Context(), s, "acme", 0, 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, next)
	require.EqualValues(t, 2, seals[0].Number)
	seals, next, err = seal.List(t.Context(), s, "acme", next, 1)
	require.NoError(t, err)
	require.Zero(t, next)
	require.EqualValues(t, 1, seals[0].Number)
	seals, _, err = seal.List(t.Context(), s, "nobody", 0, 1)
	require.NoError(t, err)
	require.Empty(t, seals)
}

func TestABalanceOpensWithTheSumOfEarlierPeriods(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-09", 100, 0), sale("acme", "b", "2026-11", 200, 0), sale("other", "c", "2026-11", 7, 0))
	run(t, s)
	post(t, s, sale("acme", "d", "2026-10", 10, 0), sale("acme", "e", "2026-11", 20, 0), sale("acme", "f", "2026-12", 40, 0))
	got, err := seal.Balances(t.Context(), s, "acme", "2026-11")
	require.NoError(t, err)
	require.Equal(t, seal.TrialBalance{Tenant: "acme", Period: "2026-11", Seal: 1, Unsealed: 2, Balances: []seal.Balance{
		{Account: "1200:receivable", Currency: "SGD", Opening: 110, Debit: 220, Closing: 330},
		{Account: "2200:tax", Currency: "SGD", Opening: -2, Credit: 2, Closing: -4},
		{Account: "4000:revenue", Currency: "SGD", Opening: -108, Credit: 218, Closing: -326},
	}}, got)
	got, err = seal.Balances(t.Context(), s, "nobody", "2026-11")
	require.NoError(t, err)
	require.Empty(t, got.Balances)
}

// An entry that cannot be read stays, is told of, and keeps no other from its seal.
func TestAnUnreadableEntryDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	broken := sale("acme", "broken", "2026-11", 100, 0)
	post(t, s, broken, sale("acme", "b", "2026-11", 200, 0))
	key := ledger.Key(ledger.EntryID("acme", "broken"))
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	doc.Fields["lines"].([]any)[0].(map[string]any)["debit"] = int64(99)
	_, err = s.Commit(t.Context(), []store.Write{store.Set(key, doc.Fields)})
	require.NoError(t, err)
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1, Unreadable: 1, OldestSeconds: 3600}, run(t, s))
	found := findings(t, s)
	require.Len(t, found, 1)
	require.Equal(t, seal.Changed, found[0].Kind)
	require.Equal(t, key.String(), found[0].Document)
}

// The time of a run is bounded: what it has not come to is said to be left.
func TestARunWithoutTimeSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: storetest.Open(t)}
	post(t, faults, sale("acme", "a", "2026-11", 100, 0), sale("beta", "b", "2026-11", 200, time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	faults.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		defer cancel()
		return do()
	}
	done, err := sealer(faults).Run(ctx)
	require.NoError(t, err)
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1, More: true, OldestSeconds: 3540}, done)
	faults.OnCommit = nil
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1}, run(t, faults))
}

func TestATenantThatCannotBeSealedDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0), sale("beta", "b", "2026-11", 200, 0))
	run(t, s)
	key := store.Key{Collection: seal.Seals, ID: seal.ID("acme", 1)}
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	doc.Fields["running"].(map[string]any)["2026-11"].(map[string]any)["2200:tax"].(map[string]any)["SGD"].(map[string]any)["credit"] = int64(2)
	_, err = s.Commit(t.Context(), []store.Write{store.Set(key, doc.Fields)})
	require.NoError(t, err)
	post(t, s, sale("acme", "c", "2026-11", 100, 0), sale("beta", "d", "2026-11", 200, 0))
	done, err := sealer(s).Run(t.Context())
	require.ErrorIs(t, err, seal.ErrBroken, "no seal is put upon one that was changed")
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1, OldestSeconds: 3600}, done)
}

// A seal of many periods fits in a document, since it is cut.
func TestASealOfManyAccountsAndPeriodsIsCut(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	for round := range 2 {
		var entries []ledger.Entry
		for i := range 120 {
			entry := sale("acme", fmt.Sprint("e", round, "-", i), fmt.Sprintf("%04d-01", 1800+i), 100, time.Duration(i)*time.Second)
			entry.Lines = nil
			for l := range 20 {
				entry.Lines = append(entry.Lines, ledger.Line{Account: fmt.Sprint("account-with-a-long-name-", l), Currency: "SGD", Debit: 1},
					ledger.Line{Account: fmt.Sprint("account-with-a-long-name-", l), Currency: "SGD", Credit: 1})
			}
			entries = append(entries, entry)
		}
		post(t, s, entries...)
		done := run(t, s)
		require.Equal(t, 120, done.Entries)
		require.Greater(t, done.Seals, 1)
		require.Less(t, done.Seals, 8)
	}
	require.Empty(t, findings(t, s))
}

// A store that is down is no finding, and no balance: the error of every single read comes out.
func TestEveryReadThatFailsFailsTheVerificationAndTheBalance(t *testing.T) {
	t.Parallel()
	s := &storetest.Faults{Store: storetest.Open(t)}
	post(t, s, sale("acme", "a", "2026-10", 100, 0), sale("acme", "b", "2026-11", 200, 0))
	run(t, s)
	credit, err := ledger.Credit(ledger.Move{
		Tenant: "acme", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 5, Currency: ledger.Points, CreatedAt: noon,
	})
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), credit)
	require.NoError(t, err)
	run(t, s)
	down := errors.New("no answer")
	for name, ask := range map[string]func() error{
		"verification": func() error {
			return seal.Verifier{From: s, Origins: sealtest.Trusting{}}.All(t.Context(), func(f seal.Finding) { require.Fail(t, "a finding", "%+v", f) })
		},
		"balance": func() error {
			_, err := seal.Balances(t.Context(), s, "acme", "2026-11")
			return err
		},
	} {
		for failing, reads := 1, 1; reads >= failing; failing++ {
			reads = 0
			s.OnRead = func(do func() error) error {
				if reads++; reads == failing {
					return down
				}
				return do()
			}
			if err := ask(); reads >= failing {
				require.ErrorIs(t, err, down, "%s, read %d", name, failing)
			} else {
				require.NoError(t, err, name)
			}
		}
	}
}

// The hash of a seal may never be computed otherwise: it is kept elsewhere.
func TestTheHashOfASealIsThatOfItsJSON(t *testing.T) {
	t.Parallel()
	s := seal.Seal{
		Tenant: "acme", Number: 2, Previous: strings.Repeat("0", 64), Root: strings.Repeat("ab", 32), Count: 1, SealedAt: noon,
		Totals:  map[string]seal.Totals{"2026-11": {"1200:receivable": {"SGD": {Debit: 9007199254740993}}}},
		Running: map[string]seal.Totals{"2026-11": {"1200:receivable": {"SGD": {Debit: 9007199254740993, Credit: 1}}}},
		Periods: map[string]int64{"2026-11": 2},
	}
	hash := sha256.Sum256([]byte(`{"count":1,"number":2,"periods":{"2026-11":2},"previous":"` + s.Previous + `","root":"` + s.Root +
		`","running":{"2026-11":{"1200:receivable":{"SGD":{"credit":"1","debit":"9007199254740993"}}}},"sealed_at":"2026-11-03T12:00:00.123456Z",` +
		`"tenant":"acme","totals":{"2026-11":{"1200:receivable":{"SGD":{"credit":"0","debit":"9007199254740993"}}}}}`))
	require.ErrorIs(t, s.Check(), seal.ErrBroken)
	s.Hash = hex.EncodeToString(hash[:])
	require.NoError(t, s.Check())
}
