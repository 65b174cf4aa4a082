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

// rpcs counts the calls that a store sends.
type rpcs struct{ commits, reads atomic.Int64 }

func (c *rpcs) count(method string) {
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "Commit":
		c.commits.Add(1)
	default:
		c.reads.Add(1)
	}
}

func openCounting(t *testing.T) (*firestore.Store, *rpcs) {
	t.Helper()
	c := &rpcs{}
	return open(t, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			err := call(ctx, method, request, answer, cc, o...)
			if status.Code(err) != codes.Aborted { // contention is repeated, more often on a slow machine
				c.count(method)
			}
			return err
		})), option.WithGRPCDialOption(grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			c.count(method)
			return stream(ctx, desc, cc, method, o...)
		}))), c
}

const racers = 50

// deliverAtOnce delivers one event from every racer at once and counts their results.
func deliverAtOnce(t *testing.T, s *firestore.Store, deliver func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error)) map[dedupe.Seen]int {
	t.Helper()
	_, err := s.Get(t.Context(), store.Key{Collection: "c", ID: "the-connection-is-up"})
	require.ErrorIs(t, err, store.ErrNotFound)
	once := &dedupe.Once{Store: s, Now: time.Now, NewToken: uuid.NewString}
	var mu sync.Mutex
	told := map[dedupe.Seen]int{}
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
				t.Errorf("a racer was told nothing: %v", err)
			}
			told[seen]++
		})
	}
	began := time.Now()
	close(start)
	all.Wait()
	t.Logf("%d racers were told in %s", racers, time.Since(began).Round(time.Millisecond))
	return told
}

func TestOfFiftyClaimsOfAnEventOneWins(t *testing.T) {
	t.Parallel()
	s, sent := openCounting(t)
	var winner *dedupe.Run
	told := deliverAtOnce(t, s, func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error) {
		seen, err := run.Claim(ctx, time.Minute, nil, false)
		if seen == dedupe.Claimed {
			winner = run // only one writes it, or the test has failed
		}
		return seen, err
	})
	require.Equal(t, map[dedupe.Seen]int{dedupe.Claimed: 1, dedupe.Held: racers - 1}, told)
	require.EqualValues(t, racers, sent.commits.Load(), "a commit each")
	require.EqualValues(t, racers-1+1, sent.reads.Load(), "a read for each that was refused, and the one before the race")
	seen, err := winner.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "done"}})
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen)
	require.EqualValues(t, racers+1, sent.commits.Load(), "the winner's second")
}

func TestOfFiftyCommitsOfAnEffectOneWins(t *testing.T) {
	t.Parallel()
	s, sent := openCounting(t)
	account := store.Key{Collection: "accounts", ID: "a"}
	told := deliverAtOnce(t, s, func(ctx context.Context, run *dedupe.Run) (dedupe.Seen, error) {
		return dedupetest.Effect(ctx, run, handler.Event{Queue: "q", ID: "e1"}, false, func(context.Context, handler.Event) (handler.Effect, error) {
			return handler.Effect{Result: "credited", Writes: []store.Write{store.Increment(account, map[string]int64{"n": 1}, nil)}}, nil
		})
	})
	require.Equal(t, map[dedupe.Seen]int{dedupe.Own: 1, dedupe.Done: racers - 1}, told)
	require.EqualValues(t, racers, sent.commits.Load(), "a commit each")
	require.EqualValues(t, racers-1+1, sent.reads.Load(), "a read for each that was refused, and the one before the race")
	doc, err := s.Get(t.Context(), account)
	require.NoError(t, err)
	require.EqualValues(t, 1, doc.Fields["n"])
}
