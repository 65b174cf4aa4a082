package firestore_test

import (
	"context"
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
	"billhook/internal/gcp/firestore"
	"billhook/internal/store"
	"billhook/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Main(m)) }

func open(t *testing.T, options ...option.ClientOption) *firestore.Store {
	t.Helper()
	s, err := firestore.NewEmulated(t.Context(), emulatortest.Firestore(t), "p-"+uuid.NewString(), "", options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestFirestoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t) })
}

// The client library sends a commit again whose answer was Unavailable, and so
// meets its own document.
func TestACommitWhoseAnswerIsLostIsRepeatedAndMeetsItself(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	s := open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			err := call(ctx, method, request, answer, cc, o...)
			if method == "/google.firestore.v1.Firestore/Commit" && calls.Add(1) == 1 && err == nil {
				return status.Error(codes.Unavailable, "the answer was lost")
			}
			return err
		})))
	key := store.Key{Collection: "c", ID: "a"}
	_, err := s.Commit(t.Context(), []store.Write{store.Create(key, map[string]any{"n": int64(1)})})
	require.ErrorIs(t, err, store.ErrExists)
	require.Equal(t, int64(2), calls.Load())
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, int64(1), doc.Fields["n"])
}

func TestAnErrorRepeatsNothingOfADocument(t *testing.T) {
	t.Parallel()
	s := open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return status.Error(codes.PermissionDenied, "marta@example.com may not")
		})))
	_, err := s.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: "c", ID: "a"}, nil)})
	require.EqualError(t, err, "firestore: commit: PermissionDenied")
}
