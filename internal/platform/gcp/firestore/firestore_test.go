package firestore_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/emulator/emulatortest"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/inspect/bulk/bulktest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// records is how many the job log has; -records=100000 takes the emulator minutes.
var records = flag.Int("records", 2_000, "how many records the job log is listed of")

func TestMain(m *testing.M) {
	// Each step of the model makes several calls to an emulator: fewer rounds than elsewhere,
	// unless the command line sets a number.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	os.Exit(emulatortest.Main(m))
}

func open(t testing.TB, options ...option.ClientOption) *firestore.Store {
	t.Helper()
	s, err := firestore.NewEmulated(t.Context(), emulatortest.Firestore(t), "p-"+uuid.NewString(), "", options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func through(t *testing.T, commit func(call func() error) error) *firestore.Store {
	t.Helper()
	return open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			does := func() error { return call(ctx, method, request, answer, cc, o...) }
			if method != "/google.firestore.v1.Firestore/Commit" {
				return does()
			}
			return commit(does)
		})))
}

// After arm(code) the next commit is applied, and its caller gets the code.
func openLosing(t *testing.T) (s *firestore.Store, arm func(codes.Code), sent *atomic.Int64) {
	t.Helper()
	var next atomic.Uint32
	sent = new(atomic.Int64)
	s = through(t, func(call func() error) error {
		err := call()
		sent.Add(1)
		if code := codes.Code(next.Swap(0)); code != codes.OK && err == nil {
			return status.Error(code, "the answer was lost")
		}
		return err
	})
	return s, func(code codes.Code) { next.Store(uint32(code)) }, sent
}

var (
	record = store.Key{Collection: "c", ID: "record"}
	create = store.Create(record, map[string]any{"n": int64(1)})
	sum    = store.Increment(store.Key{Collection: "c", ID: "sum"}, map[string]int64{"n": 7}, nil)
)

func requireSum(t *testing.T, s *firestore.Store, want int64) {
	t.Helper()
	require.Equal(t, want, storetest.Get(t, s, sum.Key).Fields["n"])
}

// The client library repeats a call that is answered Unavailable.
func TestACommitAnsweredUnavailableIsRepeatedUnlessItCouldAddTwice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// writes are made with the version of the document before
		writes func(store.Version) []store.Write
		before bool
		sent   int64
		named  error
	}{
		"a create meets itself":              {func(store.Version) []store.Write { return []store.Write{create} }, false, 2, store.ErrExists},
		"an increment beside a create too":   {func(store.Version) []store.Write { return []store.Write{sum, create} }, false, 2, store.ErrExists},
		"an increment beside a deletion too": {func(v store.Version) []store.Write { return []store.Write{sum, store.Delete(record, v)} }, true, 2, store.ErrStale},
		"an update that changes nothing does not": {func(v store.Version) []store.Write {
			return []store.Write{sum, store.Replace(record, v, create.Fields)}
		}, true, 1, nil},
		"a bare increment does not": {func(store.Version) []store.Write { return []store.Write{sum} }, false, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, arm, sent := openLosing(t)
			versions := []store.Version{0}
			if test.before {
				var err error
				versions, err = s.Commit(t.Context(), []store.Write{create})
				require.NoError(t, err)
			}
			sent.Store(0)
			arm(codes.Unavailable)
			writes := test.writes(versions[0])
			_, err := s.Commit(t.Context(), writes)
			if test.named != nil {
				require.ErrorIs(t, err, test.named)
			} else {
				require.EqualError(t, err, "firestore: commit: Unavailable")
			}
			require.Equal(t, test.sent, sent.Load())
			if writes[0].Op == store.OpIncrement {
				requireSum(t, s, 7)
			}
		})
	}
}

// Aborted is Firestore's code for contention. Nothing was written, so even an increment is repeated.
func TestACommitIsRepeatedAfterContention(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int64
	s := through(t, func(call func() error) error {
		if refusals.Add(1)%3 != 0 {
			return status.Error(codes.Aborted, "too much contention")
		}
		return call()
	})
	for i, writes := range [][]store.Write{{sum}, {create}, {sum, store.Create(store.Key{Collection: "c", ID: "another"}, nil)}} {
		storetest.Put(t, s, writes...)
		require.EqualValues(t, 3*(i+1), refusals.Load())
	}
	requireSum(t, s, 14)
}

func TestACommitIsStoredThoughItsContextEndsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := through(t, func(call func() error) error {
				if err := call(); err != nil {
					return err
				}
				if errors.Is(want, context.Canceled) { // by the caller, and late by the server's word
					cancel()
				}
				return status.FromContextError(want).Err()
			})
			_, err := s.Commit(ctx, []store.Write{create})
			require.ErrorIs(t, err, want)
			_, err = s.Get(t.Context(), record)
			require.NoError(t, err)
		})
	}
}

type brokenOnce struct {
	grpc.ClientStream

	broken *atomic.Bool
}

func (b brokenOnce) RecvMsg(m any) error {
	if b.broken.CompareAndSwap(false, true) {
		return status.Error(codes.Unavailable, "gone away")
	}
	return b.ClientStream.RecvMsg(m)
}

func TestAGetWhoseStreamBreaksIsRepeated(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	s := open(t, option.WithGRPCDialOption(grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, o...)
			return brokenOnce{ClientStream: stream, broken: &broken}, err
		})))
	_, err := s.Get(t.Context(), record)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.True(t, broken.Load())
}

// Firestore does not refuse a sum outside int64: it stays at the limit.
func TestAnIncrementStaysAtTheLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 2 {
		storetest.Put(t, s, store.Increment(sum.Key, map[string]int64{"n": math.MaxInt64 - 1}, nil))
	}
	requireSum(t, s, math.MaxInt64)
}

func TestAMissingDatabaseDoesNotLookEmpty(t *testing.T) {
	t.Parallel()
	gone := status.Error(codes.NotFound, "The database (default) does not exist for project p")
	s := open(t,
		option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
			func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				return gone
			})),
		option.WithGRPCDialOption(grpc.WithStreamInterceptor(
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, gone
			})))
	_, err := s.Get(t.Context(), record)
	require.EqualError(t, err, "firestore: get: NotFound")
	_, err = s.Query(t.Context(), store.Query{Collection: "c", Limit: 1})
	require.EqualError(t, err, "firestore: query: NotFound")
	_, err = s.Commit(t.Context(), []store.Write{create})
	require.EqualError(t, err, "firestore: commit: NotFound")
}

// No t.Parallel: it sets the environment.
func TestNewFollowsTheEnvironmentToTheEmulator(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulatortest.Firestore(t))
	s, err := firestore.New(t.Context(), "p-"+uuid.NewString(), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Get(t.Context(), record)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestAnErrorHoldsNothingOfADocument(t *testing.T) {
	t.Parallel()
	s := through(t, func(func() error) error { return status.Error(codes.PermissionDenied, "marta@example.com may not") })
	_, err := s.Commit(t.Context(), []store.Write{create})
	require.EqualError(t, err, "firestore: commit: PermissionDenied")
}

// The models of what is stored hold on Firestore's emulator as on the embedded store. What a person waits for
// is that the store conforms, and that an event is completed once.
func TestFirestoreFollowsEachModel(t *testing.T) {
	t.Parallel()
	for name, suite := range map[string]struct {
		run  func(*testing.T, func(testing.TB) store.Store)
		long bool
	}{
		"the store":    {storetest.Run, false},
		"queries":      {storetest.RunQueries, false},
		"events":       {dedupetest.Run, false},
		"the job log":  {func(t *testing.T, open func(testing.TB) store.Store) { dedupetest.RunList(t, *records, open) }, true},
		"books":        {ledgertest.Run, true},
		"journal":      {journaltest.Run, true},
		"seals":        {sealtest.Run, true},
		"orders":       {orderstest.Run, true},
		"usage":        {usagetest.Run, true},
		"dead letters": {bulktest.Run, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if suite.long && testing.Short() {
				t.Skip("runs in test-all; here it runs on the embedded store")
			}
			suite.run(t, func(t testing.TB) store.Store { return open(t) })
		})
	}
}

func TestFirestoreConformsWhereAnswersAreLost(t *testing.T) {
	t.Parallel()
	storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
		t.Helper()
		s, arm, _ := openLosing(t)
		return s, func() { arm(codes.Internal) }
	})
}

const racers = 50

func race(t *testing.T, deliver func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error)) (s *firestore.Store, outcomes map[dedupe.Seen]int, commits *atomic.Int64) {
	t.Helper()
	outcomes, commits = map[dedupe.Seen]int{}, new(atomic.Int64)
	var reads atomic.Int64
	count := func(method string) {
		if strings.HasSuffix(method, "/Commit") {
			commits.Add(1)
		} else {
			reads.Add(1)
		}
	}
	s = open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			err := call(ctx, method, request, answer, cc, o...)
			if status.Code(err) != codes.Aborted { // contention is repeated, more often on a slow machine
				count(method)
			}
			return err
		})), option.WithGRPCDialOption(grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			count(method)
			return stream(ctx, desc, cc, method, o...)
		})))
	_, err := s.Get(t.Context(), record) // the connection is up then
	require.ErrorIs(t, err, store.ErrNotFound)
	once := &dedupe.Once{Store: s, Now: time.Now, NewToken: uuid.NewString}
	var mu sync.Mutex
	start := make(chan struct{})
	var all sync.WaitGroup
	for range racers {
		all.Go(func() {
			run := once.Begin(dedupe.Key("q", "default", "e1"), dedupe.Record{Queue: "q", Tenant: "default", EventID: "e1", PayloadHash: "sha256:a"}, time.Hour)
			<-start
			seen, err := deliver(t.Context(), run)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("a racer was answered nothing: %v", err)
			}
			outcomes[seen]++
		})
	}
	close(start)
	all.Wait()
	require.EqualValues(t, racers, commits.Load(), "a commit each")
	require.EqualValues(t, racers-1+1, reads.Load(), "a read for each that was refused, and the one before the race")
	return s, outcomes, commits
}

func TestOfFiftyClaimsOfAnEventOneWins(t *testing.T) {
	t.Parallel()
	var winner *dedupe.Run
	_, outcomes, commits := race(t, func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error) {
		seen, err := run.Claim(ctx, time.Minute, nil, false)
		if seen == dedupe.Claimed {
			winner = run // only one writes it, or the test has failed
		}
		return seen, err
	})
	require.Equal(t, map[dedupe.Seen]int{dedupe.Claimed: 1, dedupe.Held: racers - 1}, outcomes)
	seen, err := winner.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "done"}})
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen)
	require.EqualValues(t, racers+1, commits.Load(), "the winner's second")
}

func TestOfFiftyCommitsOfAnEffectOneWins(t *testing.T) {
	t.Parallel()
	s, outcomes, _ := race(t, func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error) {
		return dedupetest.Effect(ctx, run, handler.Event{Queue: "q", ID: "e1"}, false, func(context.Context, handler.Event) (handler.Effect, error) {
			return handler.Effect{Result: "credited", Writes: []store.Write{sum}}, nil
		})
	})
	require.Equal(t, map[dedupe.Seen]int{dedupe.Own: 1, dedupe.Done: racers - 1}, outcomes)
	requireSum(t, s, 7)
}
