package firestore_test

import (
	"context"
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

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
)

const racers = 50

// race delivers one event from every racer at once. It counts what they were answered, and the commits and reads that
// the store has sent.
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
