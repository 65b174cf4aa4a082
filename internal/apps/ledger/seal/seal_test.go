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
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 123456000, time.UTC)

func sale(tenant, event, period string, amount int64, after time.Duration) ledger.Entry {
	return ledgertest.Sale(tenant, event, period, amount, noon.Add(after))
}

func credit(t *testing.T, uid, order string) []store.Write {
	t.Helper()
	return ledgertest.Credited(t, ledger.Move{
		Tenant: "acme", Order: order, EventID: "e-" + order, To: ledger.UserPoints(uid), Amount: 5,
		OrderTotal: 2500, OrderCurrency: "SGD", CreatedAt: noon,
	})
}

func post(t *testing.T, s store.Committer, entries ...ledger.Entry) {
	t.Helper()
	for some := range slices.Chunk(entries, store.MaxWrites) {
		var writes []store.Write
		for _, entry := range some {
			writes = append(writes, filetest.Must(ledger.Post(entry))(t)...)
		}
		storetest.Put(t, s, writes...)
	}
}

func sealer(s store.Store) seal.Sealer {
	return seal.Sealer{
		Store: s, Origins: sealtest.Trusting{}, Now: func() time.Time { return noon.Add(time.Hour) },
	}
}

func run(t *testing.T, s store.Store) seal.Sealed {
	t.Helper()
	return filetest.Must(sealer(s).Run(t.Context()))(t)
}

func verifier(from ledger.Reader) seal.Verifier {
	return seal.Verifier{From: from, Origins: sealtest.Trusting{}}
}

func findings(t *testing.T, from ledger.Reader) []seal.Finding {
	t.Helper()
	return filetest.Must(sealtest.Findings(t.Context(), verifier(from)))(t)
}

// A seal is one commit of three documents. A run reads each entry once, and a page of each shard; besides the
// seals it writes the cursor at its beginning and once for each batch of entries.
func TestABacklogIsSealedWithOneReadOfEachEntry(t *testing.T) {
	t.Parallel()
	s, big := &storetest.Counter{Store: storetest.Open(t)}, 12_000
	if testing.Short() {
		big = 2_400
	}
	for tenant, n := range map[string]int{"big": big, "small": 3} {
		var entries []ledger.Entry
		for i := range n {
			entries = append(entries, sale(tenant, fmt.Sprint("e", i), "2026-11", 100, time.Duration(i)*time.Second))
		}
		post(t, s, entries...)
	}
	s = &storetest.Counter{Store: s.Store}
	done := run(t, s)
	require.Equal(t, big+3, done.Entries)
	require.Less(t, done.Seals, 20)
	require.Less(t, s.Reads.Load(), int64((big+3)*101/100))
	require.Less(t, s.Written.Load(), int64(3*done.Seals+5))
	s = &storetest.Counter{Store: s.Store}
	require.Equal(t, seal.Sealed{}, run(t, s))
	require.Equal(t, []int64{1 + ledger.Shards, 1}, []int64{s.Reads.Load(), s.Written.Load()},
		"a run without entries to seal")
	post(t, s, sale("big", "waits", "2026-11", 100, 0), sale("big", "later", "2026-12", 100, 0))
	balance := filetest.Must(seal.Balances(t.Context(), s, "big", "2026-11", "2026-11"))(t)
	require.Equal(t, []int64{int64(done.Seals) - 1, 1}, []int64{balance.Seal, balance.Unsealed},
		"the balance names the last seal that it includes")
	require.Empty(t, findings(t, s))
}

func TestEntriesYoungerThanTheLagAreNotSealedYet(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0))
	late := sealer(s)
	late.Lag = time.Hour
	require.Equal(t, seal.Sealed{}, filetest.Must(late.Run(t.Context()))(t))
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1}, run(t, s))
}

func TestARunThatIsOutOfTimeReportsThatThereIsMore(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: storetest.Open(t)}
	post(t, faults, sale("acme", "a", "2026-11", 100, 0), sale("beta", "b", "2026-11", 200, time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	faults.OnCommit = func(_ context.Context, writes []store.Write, do func() error) error {
		if writes[0].Key.Collection == seal.Seals {
			defer cancel()
		}
		return do()
	}
	done := filetest.Must(sealer(faults).Run(ctx))(t)
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1, More: true, OldestSeconds: 3540}, done)
	faults.OnCommit = nil
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1}, run(t, faults))
}

func TestATenantThatCannotBeSealedDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0), sale("beta", "b", "2026-11", 200, 0))
	run(t, s)
	change := func(credit int64) {
		storetest.Edit(t, s, store.Key{Collection: seal.Seals, ID: seal.ID("acme", 1)},
			func(fields map[string]any) {
				month := fields["running"].(map[string]any)["2026-11"].(map[string]any)
				month["revenue"].(map[string]any)["EUR"].(map[string]any)["credit"] = credit
			})
	}
	change(99)
	post(t, s, sale("acme", "c", "2026-11", 100, 0), sale("beta", "d", "2026-11", 200, 0))
	for _, sealed := range []int{1, 0} {
		done, err := sealer(s).Run(t.Context())
		require.ErrorIs(t, err, seal.ErrBroken, "no seal follows one that was changed")
		require.Equal(t, seal.Sealed{Entries: sealed, Seals: sealed, OldestSeconds: 3600}, done)
	}
	change(100)
	require.Equal(t, seal.Sealed{Entries: 1, Seals: 1}, run(t, s), "a repaired tenant's entries are sealed")
	require.Empty(t, findings(t, s))
}

// A seal is one document, so entries of too many accounts and periods are divided into several.
func TestEntriesOfManyAccountsAndPeriodsGetSeveralSeals(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	for round := range 2 {
		var entries []ledger.Entry
		for i := range 120 {
			entry := sale("acme", fmt.Sprint("e", round, "-", i), fmt.Sprintf("%04d-01", 1800+i), 100,
				time.Duration(i)*time.Second)
			entry.Lines = nil
			for l := range 40 {
				account := fmt.Sprint("account-with-a-long-name-", l/2)
				entry.Lines = append(entry.Lines,
					ledger.Line{Account: account, Currency: "SGD", Debit: int64(l % 2), Credit: int64(1 - l%2)})
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

// A store that is down is no finding, and no balance of 0.
func TestAnyFailedReadFailsTheVerificationAndTheBalance(t *testing.T) {
	t.Parallel()
	s := &storetest.Faults{Store: storetest.Open(t)}
	post(t, s, sale("acme", "a", "2026-10", 100, 0), sale("acme", "b", "2026-11", 200, 0))
	run(t, s)
	storetest.Put(t, s, credit(t, "u1", "o1")...)
	run(t, s)
	down := errors.New("no answer")
	for name, do := range map[string]func() error{
		"verification": func() error {
			found, err := sealtest.Findings(t.Context(), verifier(s))
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
			err := do()
			if reads < failing {
				require.NoError(t, err, name)
				break
			}
			require.ErrorIs(t, err, down, "%s, read %d", name, failing)
		}
	}
}

func TestSealsFollowTheModelOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	sealtest.Run(t, storetest.Open)
}

// watching is the verification task of a store; it appends its findings to reported.
func watching(s store.Store, now func() time.Time, reported *[]string) seal.Watch {
	return seal.Watch{
		Verifier: verifier(s), Store: s, Now: now,
		Report: func(f seal.Finding) { *reported = append(*reported, f.Kind+" "+f.Document) },
	}
}

// watched has more seals than one part verifies, one changed entry, an entry without a seal, and an account.
func watched(t *testing.T) store.Store {
	t.Helper()
	s := storetest.Open(t)
	for i := range 12 {
		post(t, s, sale("acme", fmt.Sprint("a", i), "2026-11", 100, 0))
		run(t, s)
	}
	post(t, s, sale("beta", "b", "2026-11", 100, 0), sale("zeta", "z", "2026-11", 100, 0))
	run(t, s)
	storetest.Edit(t, s, ledger.Key(ledger.EntryID("beta", "b")), func(fields map[string]any) {
		fields["rule"] = "another"
	})
	storetest.Put(t, s, credit(t, "u1", "o1")...)
	return s
}

// inWatched are the counts of a whole verification of watched.
var inWatched = seal.Counts{Seals: 14, Entries: 14, Unsealed: 1, Accounts: 1}

// It finds the same as one without interruptions, once, and begins again a day later.
func TestAnInterruptedDailyVerificationContinues(t *testing.T) {
	t.Parallel()
	step := 3
	if testing.Short() {
		step = 11
	}
	for reads := 4; reads < 40; reads += step {
		s := &storetest.Faults{Store: watched(t)}
		now := noon
		var reported []string
		watch := watching(s, func() time.Time { return now }, &reported)
		steps := 0
		var state seal.State
		for state.Last.FinishedAt.IsZero() {
			steps++
			require.Less(t, steps, 100, "%d reads", reads)
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			s.OnRead = func(do func() error) error {
				if n++; n > max(reads, 100*(steps/20)) {
					cancel()
					return ctx.Err()
				}
				return do()
			}
			var err error
			if state, err = watch.Step(ctx); err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			cancel()
			now = now.Add(5 * time.Minute)
		}
		require.Equal(t, []string{"changed entries/" + ledger.EntryID("beta", "b")}, reported)
		require.EqualValues(t, 1, state.Worst().Found)
		require.Equal(t, "changed", state.Last.Findings[0].Kind)
		require.Equal(t, inWatched, state.Last.Counts)
		s.OnRead = nil
		again := filetest.Must(watch.Step(t.Context()))(t)
		require.Equal(t, state.Last, again.Last, "once a day")
		now = state.Last.BegunAt.Add(24 * time.Hour)
		again = filetest.Must(watch.Step(t.Context()))(t)
		require.Equal(t, now, again.Last.BegunAt)
		require.Len(t, reported, 2)
	}
}

func step(t *testing.T, s store.Store) seal.State {
	t.Helper()
	return filetest.Must(watching(s, func() time.Time { return noon }, new([]string)).Step(t.Context()))(t)
}

func TestAVerificationWithDamagedProgressBeginsAnew(t *testing.T) {
	t.Parallel()
	s := watched(t)
	storetest.Put(t, s, store.Set(progress, map[string]any{
		"at":      "behind everything",
		"running": map[string]any{"begun_at": noon.Add(-time.Hour), "seals": int64(7), "found": int64(1)},
	}))
	last := step(t, s).Last
	require.Equal(t, []any{noon, inWatched, int64(1)}, []any{last.BegunAt, last.Counts, last.Found})
}

func TestAVerificationOfLargeBooksIsSpreadOverDays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		running, last int64         // documents read
		begun         time.Duration // ago
		goesOn        bool
	}{
		"small books are read within the day":                  {199_000, 0, time.Hour, true},
		"the reads of a day are used up":                       {200_000, 0, 23 * time.Hour, false},
		"the next day goes on":                                 {200_000, 0, 24 * time.Hour, true},
		"large books are read in 28 days":                      {999_000, 28_000_000, time.Hour, true},
		"and no sooner":                                        {1_000_000, 28_000_000, time.Hour, false},
		"a clock that is behind stops only until the next day": {400_000, 0, -time.Hour, false},
	} {
		s, reported := watched(t), []string{}
		begun := noon.Add(-test.begun)
		storetest.Put(t, s, store.Set(store.Key{Collection: seal.Verifications, ID: "books"}, map[string]any{
			"running": map[string]any{"begun_at": begun, "reads": test.running},
			"last":    map[string]any{"begun_at": begun.Add(-24 * time.Hour), "reads": test.last},
		}))
		state := filetest.Must(watching(s, func() time.Time { return noon }, &reported).Step(t.Context()))(t)
		require.Equal(t, test.goesOn, len(reported) == 1, name)
		if test.goesOn {
			require.Greater(t, state.Last.Reads, test.running, name)
			require.Equal(t, begun, state.Last.BegunAt, name)
		} else {
			require.Equal(t, test.running, state.Running.Reads, name)
		}
	}
}

func TestAVerificationReadsInProportionToTheBooks(t *testing.T) {
	t.Parallel()
	cost := func(tenants int) int64 {
		s := &storetest.Counter{Store: storetest.Open(t)}
		for n := range tenants {
			post(t, s, sale(fmt.Sprint("t", n), "e", "2026-11", 100, 0))
		}
		run(t, s)
		s.Reads.Store(0)
		last := step(t, s).Last
		require.InEpsilon(t, s.Reads.Load(), last.Reads, 0.2, "as the database counts them")
		require.EqualValues(t, tenants, last.Seals)
		return s.Reads.Load()
	}
	require.Less(t, cost(40), 5*cost(10), "four times as many tenants need some four times as many reads")
}

// A step ends after so many reads, so each part has to count its own.
func TestAPartCountsTheDocumentsThatItReads(t *testing.T) {
	t.Parallel()
	s := &storetest.Counter{Store: watched(t)}
	for at, parts := "", 0; at != "" || parts == 0; parts++ {
		s.Reads.Store(0)
		part := filetest.Must(verifier(s).All(t.Context(), at))(t)
		require.InDelta(t, s.Reads.Load(), part.Read(), 12, at)
		at = part.Next
	}
}

// Of two steps at once one ends early, and each part is counted once. Both may report the same finding.
func TestTwoStepsAtOnceCountEachPartOnce(t *testing.T) {
	t.Parallel()
	s := watched(t)
	faults := &storetest.Faults{Store: s}
	var reported []string
	watch := func(on store.Store) seal.Watch { return watching(on, func() time.Time { return noon }, &reported) }
	first := true
	faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
		if first {
			first = false
			require.NoError(t, filetest.ErrorOf(watch(s).Step(ctx)))
		}
		return do()
	}
	state := filetest.Must(watch(faults).Step(t.Context()))(t)
	require.Contains(t, []int{1, 2}, len(reported))
	require.EqualValues(t, 1, state.Last.Found)
	require.Equal(t, inWatched, state.Last.Counts)
}
