package firestore_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
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
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk/bulktest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates/ratestest"
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
	s := filetest.Must(firestore.NewEmulated(t.Context(), emulatortest.Firestore(t), "p-"+uuid.NewString(), "",
		options...))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func through(t *testing.T, commit func(call func() error) error) *firestore.Store {
	t.Helper()
	return open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker,
			o ...grpc.CallOption,
		) error {
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
func TestUnavailableCommitIsRepeatedUnlessItCouldAddTwice(t *testing.T) {
	t.Parallel()
	type row struct {
		writes []store.Write // a versioned one gets the version of the stored record
		stored bool
		sent   int64
		named  error
	}
	filetest.Each(t, map[string]row{
		"a create is repeated":                     {[]store.Write{create}, false, 2, store.ErrExists},
		"an increment beside a create is repeated": {[]store.Write{sum, create}, false, 2, store.ErrExists},
		"an increment beside a deletion is repeated": {
			[]store.Write{sum, store.Delete(record, 1)}, true, 2, store.ErrStale,
		},
		"an increment beside an update without a change is not repeated": {
			[]store.Write{sum, store.Replace(record, 1, create.Fields)}, true, 1, nil,
		},
		"an increment alone is not repeated": {[]store.Write{sum}, false, 1, nil},
	}, func(t *testing.T, test row) {
		s, arm, sent := openLosing(t)
		if test.stored {
			test.writes[1].Version = filetest.Must(s.Commit(t.Context(), []store.Write{create}))(t)[0]
		}
		sent.Store(0)
		arm(codes.Unavailable)
		_, err := s.Commit(t.Context(), test.writes)
		if test.named != nil {
			require.ErrorIs(t, err, test.named)
		} else {
			require.EqualError(t, err, "firestore: commit: Unavailable")
		}
		require.Equal(t, test.sent, sent.Load())
		if test.writes[0].Op == store.OpIncrement {
			requireSum(t, s, 7)
		}
	})
}

// Aborted is Firestore's code for contention. Nothing was written, so even an increment is repeated.
func TestCommitIsRepeatedAfterContention(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int64
	s := through(t, func(call func() error) error {
		if refusals.Add(1)%3 != 0 {
			return status.Error(codes.Aborted, "too much contention")
		}
		return call()
	})
	for i, writes := range [][]store.Write{
		{sum}, {create}, {sum, store.Create(store.Key{Collection: "c", ID: "another"}, nil)},
	} {
		storetest.Put(t, s, writes...)
		require.EqualValues(t, 3*(i+1), refusals.Load())
	}
	requireSum(t, s, 14)
}

func TestCommitMayBeStoredAfterItsContextHasEnded(t *testing.T) {
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
				if errors.Is(want, context.Canceled) { // by the caller; the server reports it late
					cancel()
				}
				return status.FromContextError(want).Err()
			})
			require.ErrorIs(t, filetest.ErrorOf(s.Commit(ctx, []store.Write{create})), want)
			require.NoError(t, filetest.ErrorOf(s.Get(t.Context(), record)))
		})
	}
}

type brokenOnce struct {
	grpc.ClientStream

	broken *atomic.Bool
}

func (b brokenOnce) RecvMsg(m any) error {
	if b.broken.CompareAndSwap(false, true) {
		return status.Error(codes.Unavailable, "the connection was lost")
	}
	return b.ClientStream.RecvMsg(m)
}

func TestGetIsRepeatedAfterABrokenStream(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	s := open(t, option.WithGRPCDialOption(grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
			o ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, o...)
			return brokenOnce{ClientStream: stream, broken: &broken}, err
		})))
	require.ErrorIs(t, filetest.ErrorOf(s.Get(t.Context(), record)), store.ErrNotFound)
	require.True(t, broken.Load())
}

// Firestore does not refuse a sum outside int64: it stays at the limit.
func TestIncrementStaysAtTheLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 2 {
		storetest.Put(t, s, store.Increment(sum.Key, map[string]int64{"n": math.MaxInt64 - 1}, nil))
	}
	requireSum(t, s, math.MaxInt64)
}

// A missing database, which is NotFound, does not look empty.
func TestErrorHasOnlyFirestoresCode(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.NotFound, codes.PermissionDenied} {
		refused := status.Error(code, "marta@example.com may not")
		s := open(t,
			option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
				func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
					return refused
				})),
			option.WithGRPCDialOption(grpc.WithStreamInterceptor(
				func(
					context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption,
				) (grpc.ClientStream, error) {
					return nil, refused
				})))
		for operation, err := range map[string]error{
			"query":  filetest.ErrorOf(s.Query(t.Context(), store.Query{Collection: "c", Limit: 1})),
			"get":    filetest.ErrorOf(s.Get(t.Context(), record)),
			"commit": filetest.ErrorOf(s.Commit(t.Context(), []store.Write{create})),
		} {
			require.EqualError(t, err, "firestore: "+operation+": "+code.String())
		}
	}
}

// No t.Parallel: it sets the environment.
func TestNewConnectsToTheEmulatorOfTheEnvironment(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulatortest.Firestore(t))
	s := filetest.Must(firestore.New(t.Context(), "p-"+uuid.NewString(), ""))(t)
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorIs(t, filetest.ErrorOf(s.Get(t.Context(), record)), store.ErrNotFound)
}

// The models of what is stored hold on Firestore's emulator as on the embedded store. What a person waits for
// is that the store conforms, and that an event is completed once.
func TestFirestoreFollowsEachModel(t *testing.T) {
	t.Parallel()
	type row struct {
		run  func(*testing.T, func(testing.TB) store.Store)
		long bool
	}
	filetest.Each(t, map[string]row{
		"the store": {storetest.Run, false},
		"queries":   {storetest.RunQueries, false},
		"events":    {dedupetest.Run, false},
		"the job log": {
			func(t *testing.T, open func(testing.TB) store.Store) { dedupetest.RunList(t, *records, open) }, true,
		},
		"books":        {ledgertest.Run, true},
		"journal":      {journaltest.Run, true},
		"seals":        {sealtest.Run, true},
		"orders":       {orderstest.Run, true},
		"usage":        {usagetest.Run, true},
		"dead letters": {bulktest.Run, true},
		"rates":        {ratestest.Run, true},
	}, func(t *testing.T, suite row) {
		if suite.long && testing.Short() {
			t.Skip("runs in test-all; here it runs on the embedded store")
		}
		suite.run(t, func(t testing.TB) store.Store { return open(t) })
	})
}

func TestFirestoreConformsWithLostAnswers(t *testing.T) {
	t.Parallel()
	storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
		s, arm, _ := openLosing(t)
		return s, func() { arm(codes.Internal) }
	})
}

// Each makes one commit: one of them wins, and the others find its record.
func TestOneOfFiftyDeliveriesOfAnEventWins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deliver   func(run *dedupe.Run) (dedupe.Seen, error)
		won, lost dedupe.Seen
	}{
		"a claim": {func(run *dedupe.Run) (dedupe.Seen, error) {
			return run.Claim(t.Context(), time.Minute, nil, false)
		}, dedupe.Claimed, dedupe.Held},
		"an effect": {func(run *dedupe.Run) (dedupe.Seen, error) {
			return dedupetest.Effect(t.Context(), run, handler.Event{Queue: "q", ID: "e1"}, false,
				func(context.Context, handler.Event) (handler.Effect, error) {
					return handler.Effect{Result: "credited", Writes: []store.Write{sum}}, nil
				})
		}, dedupe.Own, dedupe.Done},
	} {
		var commits atomic.Int64
		s := through(t, func(call func() error) error {
			err := call()
			if status.Code(err) != codes.Aborted { // contention is repeated, more often on a slow machine
				commits.Add(1)
			}
			return err
		})
		once := &dedupe.Once{Store: s, Now: time.Now, NewToken: uuid.NewString}
		outcomes := make([]dedupe.Seen, 50)
		var all errgroup.Group
		for i := range outcomes {
			all.Go(func() (err error) {
				outcomes[i], err = test.deliver(once.Begin(dedupe.Key("q", "default", "e1"),
					dedupe.Record{Identity: dedupe.Identity{
						Queue: "q", Tenant: "default", EventID: "e1", PayloadHash: "sha256:a",
					}}, time.Hour))
				return err
			})
		}
		require.NoError(t, all.Wait(), name)
		require.EqualValues(t, len(outcomes), commits.Load(), name)
		require.Contains(t, outcomes, test.won, name)
		require.Len(t, slices.DeleteFunc(outcomes, func(seen dedupe.Seen) bool {
			return seen == test.lost
		}), 1, name)
		if test.won == dedupe.Own {
			requireSum(t, s, 7)
		}
	}
}
