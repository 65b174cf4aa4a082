package firestore_test

import (
	"context"
	"flag"
	"math"
	"os"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/emulator/emulatortest"
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

func open(t *testing.T, options ...option.ClientOption) *firestore.Store {
	t.Helper()
	s, err := firestore.NewEmulated(t.Context(), emulatortest.Firestore(t), "p-"+uuid.NewString(), "", options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

const commitMethod = "/google.firestore.v1.Firestore/Commit"

// openLosing opens a store that loses answers of commits. After arm(code), the next commit is
// applied and its caller gets the code. sent counts the commits.
func openLosing(t *testing.T) (s *firestore.Store, arm func(codes.Code), sent *atomic.Int64) {
	t.Helper()
	var next atomic.Uint32
	sent = new(atomic.Int64)
	s = open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			err := call(ctx, method, request, answer, cc, o...)
			if method != commitMethod {
				return err
			}
			sent.Add(1)
			if code := codes.Code(next.Swap(0)); code != codes.OK && err == nil {
				return status.Error(code, "the answer was lost")
			}
			return err
		})))
	return s, func(code codes.Code) { next.Store(uint32(code)) }, sent
}

func TestFirestoreConformsWhereAnswersAreLost(t *testing.T) {
	t.Parallel()
	storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
		t.Helper()
		s, arm, _ := openLosing(t)
		return s, func() { arm(codes.Internal) }
	})
}

// The client library repeats a call that is answered Unavailable.
func TestACommitAnsweredUnavailableIsRepeatedUnlessItCouldAddTwice(t *testing.T) {
	t.Parallel()
	record := store.Key{Collection: "c", ID: "record"}
	sum := store.Increment(store.Key{Collection: "c", ID: "sum"}, map[string]int64{"n": 7}, nil)
	create := store.Create(record, map[string]any{"n": int64(1)})
	for name, test := range map[string]struct {
		// writes are made with the version of the document before
		writes func(store.Version) []store.Write
		before []store.Write
		sent   int64
		named  error
	}{
		"a create meets itself":            {func(store.Version) []store.Write { return []store.Write{create} }, nil, 2, store.ErrExists},
		"an increment beside a create too": {func(store.Version) []store.Write { return []store.Write{sum, create} }, nil, 2, store.ErrExists},
		"an increment beside a deletion too": {func(v store.Version) []store.Write {
			return []store.Write{sum, store.Delete(record, v)}
		}, []store.Write{create}, 2, store.ErrStale},
		"an update that changes nothing does not": {func(v store.Version) []store.Write {
			return []store.Write{sum, store.Replace(record, v, create.Fields)}
		}, []store.Write{create}, 1, nil},
		"a bare increment does not": {func(store.Version) []store.Write { return []store.Write{sum} }, nil, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, arm, sent := openLosing(t)
			versions := []store.Version{0}
			if test.before != nil {
				var err error
				versions, err = s.Commit(t.Context(), test.before)
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
				doc, err := s.Get(t.Context(), sum.Key)
				require.NoError(t, err)
				require.Equal(t, int64(7), doc.Fields["n"], "added once")
			}
		})
	}
}

// Aborted is Firestore's code for contention. Nothing was written, so even an increment is
// repeated.
func TestACommitIsRepeatedAfterContention(t *testing.T) {
	t.Parallel()
	sum := store.Increment(store.Key{Collection: "c", ID: "sum"}, map[string]int64{"n": 7}, nil)
	record := store.Create(store.Key{Collection: "c", ID: "record"}, map[string]any{"n": int64(1)})
	for name, writes := range map[string][]store.Write{"a bare increment": {sum}, "a create": {record}, "both": {sum, record}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refusals atomic.Int64
			s := open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
				func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
					if method == commitMethod && refusals.Add(1) <= 2 {
						return status.Error(codes.Aborted, "too much contention")
					}
					return call(ctx, method, request, answer, cc, o...)
				})))
			_, err := s.Commit(t.Context(), writes)
			require.NoError(t, err)
			require.EqualValues(t, 3, refusals.Load())
			if writes[0].Op == store.OpIncrement {
				doc, err := s.Get(t.Context(), sum.Key)
				require.NoError(t, err)
				require.Equal(t, int64(7), doc.Fields["n"], "added once")
			}
		})
	}
}

func TestACommitIsStoredThoughItsContextEndsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(context.CancelFunc) error
		want error
	}{
		"canceled by the caller": {func(cancel context.CancelFunc) error {
			cancel()
			return status.Error(codes.Canceled, "canceled")
		}, context.Canceled},
		"late by the server's word": {func(context.CancelFunc) error {
			return status.Error(codes.DeadlineExceeded, "late")
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
				func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
					if err := call(ctx, method, request, answer, cc, o...); err != nil {
						return err
					}
					return test.end(cancel)
				})))
			key := store.Key{Collection: "c", ID: "a"}
			_, err := s.Commit(ctx, []store.Write{store.Create(key, nil)})
			require.ErrorIs(t, err, test.want)
			_, err = s.Get(t.Context(), key)
			require.NoError(t, err)
		})
	}
}

// brokenOnce is a stream that fails on its first answer.
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
	_, err := s.Get(t.Context(), store.Key{Collection: "c", ID: "a"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.True(t, broken.Load())
}

// Firestore does not refuse a sum outside int64: it stays at the limit.
func TestAnIncrementStaysAtTheLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	key := store.Key{Collection: "c", ID: "a"}
	for range 2 {
		_, err := s.Commit(t.Context(), []store.Write{store.Increment(key, map[string]int64{"n": math.MaxInt64 - 1}, nil)})
		require.NoError(t, err)
	}
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), doc.Fields["n"])
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
	key := store.Key{Collection: "c", ID: "a"}
	_, err := s.Get(t.Context(), key)
	require.EqualError(t, err, "firestore: get: NotFound")
	_, err = s.Query(t.Context(), store.Query{Collection: "c", Limit: 1})
	require.EqualError(t, err, "firestore: query: NotFound")
	_, err = s.Commit(t.Context(), []store.Write{store.Create(key, nil)})
	require.EqualError(t, err, "firestore: commit: NotFound")
}

// No t.Parallel: it sets the environment.
func TestNewFollowsTheEnvironmentToTheEmulator(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulatortest.Firestore(t))
	s, err := firestore.New(t.Context(), "p-"+uuid.NewString(), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Get(t.Context(), store.Key{Collection: "c", ID: "a"})
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestAnErrorHoldsNothingOfADocument(t *testing.T) {
	t.Parallel()
	s := open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return status.Error(codes.PermissionDenied, "marta@example.com may not")
		})))
	_, err := s.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: "c", ID: "a"}, nil)})
	require.EqualError(t, err, "firestore: commit: PermissionDenied")
}
