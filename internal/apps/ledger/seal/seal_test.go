package seal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 123456000, time.UTC)

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

func credit(t *testing.T, order string) []store.Write {
	t.Helper()
	return creditTo(t, "u1", order)
}

func creditTo(t *testing.T, uid, order string) []store.Write {
	t.Helper()
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "acme", Order: order, EventID: "e-" + order, From: ledger.IssuedPoints(order), To: ledger.UserPoints(uid), Amount: 5,
		Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "SGD", CreatedAt: noon,
	})
	require.NoError(t, err)
	return writes
}

func post(t *testing.T, s store.Committer, entries ...ledger.Entry) {
	t.Helper()
	for some := range slices.Chunk(entries, store.MaxWrites) {
		var writes []store.Write
		for _, entry := range some {
			w, err := ledger.Post(entry)
			require.NoError(t, err)
			writes = append(writes, w...)
		}
		storetest.Put(t, s, writes...)
	}
}

func tamper(t *testing.T, s store.Store, key store.Key, do func(fields map[string]any)) {
	t.Helper()
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	do(doc.Fields)
	storetest.Put(t, s, store.Set(key, doc.Fields))
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

func findings(t *testing.T, from ledger.Reader) []seal.Finding {
	t.Helper()
	found, err := sealtest.Findings(t.Context(), seal.Verifier{From: from, Origins: sealtest.Trusting{}})
	require.NoError(t, err)
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
	s = &storetest.Counter{Store: s.Store}
	require.Equal(t, seal.Sealed{Entries: 1203, Seals: 4}, run(t, s))
	require.EqualValues(t, 4, s.Commits.Load())
	require.EqualValues(t, 1203+4*3, s.Written.Load())
	require.EqualValues(t, 4+2, s.Gets.Load(), "the head for each seal, and the seal before of a tenant that has one")
	require.EqualValues(t, 2, s.Queries.Load(), "two pages of what is open")
	require.Equal(t, seal.Sealed{}, run(t, s))
	require.EqualValues(t, 2+1, s.Queries.Load())
	post(t, s, sale("big", "waits", "2026-11", 100, 0), sale("big", "later", "2026-12", 100, 0))
	balance, err := seal.Balances(t.Context(), s, "big", "2026-11", "2026-11")
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, []int64{balance.Seal, balance.Unsealed}, "how far it goes")
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
		same, err := seal.Unchanged(t.Context(), s, entry)
		require.NoError(t, err)
		require.True(t, same)
		entry.Leaf++
		same, err = seal.Unchanged(t.Context(), s, entry)
		require.NoError(t, err)
		require.False(t, same, "it is not what the seal has at another place")
	}
}

// An entry that cannot be read stays, is told of, and keeps no other from its seal.
func TestAnUnreadableEntryDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "broken", "2026-11", 100, 0), sale("acme", "b", "2026-11", 200, 0))
	key := ledger.Key(ledger.EntryID("acme", "broken"))
	tamper(t, s, key, func(fields map[string]any) { fields["lines"].([]any)[0].(map[string]any)["debit"] = int64(99) })
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1, Unreadable: 1, OldestSeconds: 3600}, run(t, s))
	require.Equal(t, []seal.Finding{{Kind: seal.Changed, Tenant: "acme", Document: key.String(), Detail: "the entry is not readable"}}, findings(t, s))
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
	tamper(t, s, store.Key{Collection: seal.Seals, ID: seal.ID("acme", 1)}, func(fields map[string]any) {
		fields["running"].(map[string]any)["2026-11"].(map[string]any)["2200:tax"].(map[string]any)["SGD"].(map[string]any)["credit"] = int64(2)
	})
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
			for l := range 40 {
				account := fmt.Sprint("account-with-a-long-name-", l/2)
				entry.Lines = append(entry.Lines, ledger.Line{Account: account, Currency: "SGD", Debit: int64(l % 2), Credit: int64(1 - l%2)})
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
	storetest.Put(t, s, credit(t, "o1")...)
	run(t, s)
	down := errors.New("no answer")
	for name, ask := range map[string]func() error{
		"verification": func() error {
			found, err := sealtest.Findings(t.Context(), seal.Verifier{From: s, Origins: sealtest.Trusting{}})
			require.Empty(t, found)
			return err
		},
		"balance": func() error {
			_, err := seal.Balances(t.Context(), s, "acme", "2026-11", "2026-11")
			return err
		},
	} {
		for failing := 1; ; failing++ {
			reads := 0
			s.OnRead = func(do func() error) error {
				if reads++; reads == failing {
					return down
				}
				return do()
			}
			err := ask()
			if reads < failing {
				require.NoError(t, err, name)
				break
			}
			require.ErrorIs(t, err, down, "%s, read %d", name, failing)
		}
	}
}

func TestSealsFollowTheModelHere(t *testing.T) {
	t.Parallel()
	sealtest.Run(t, storetest.Open)
}
