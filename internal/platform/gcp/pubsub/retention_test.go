package pubsub_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"billhook/catalog"
	"billhook/internal/platform/gcp/pubsub"
)

// Pub/Sub keeps a message for 31 days at the most, which is what the catalog asks for, and
// Google's emulator for 7: there it is asked for no more.
func TestWhatTheCatalogKeepsIsAskedForAsFarAsItCanBe(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		emulator      bool
		queue, letter time.Duration
	}{
		"on Google Cloud": {false, 31 * day, 14 * day},
		"on the emulator": {true, 7 * day, 7 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, options := inMemory(t)
			asked := map[string]time.Duration{}
			options = append(options, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
				func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
					if want, ok := request.(*pubsubpb.Subscription); ok {
						asked[want.Name] = want.MessageRetentionDuration.AsDuration()
						return nil
					}
					return next(ctx, method, request, answer, cc, o...)
				})))
			target := pubsub.Target{ProjectID: "p", PushBaseURL: "https://worker.example", Emulator: test.emulator}
			if !test.emulator {
				target.PushAudience, target.PushServiceAccount = "aud", "push@example.com"
			}
			_, err := pubsub.Provision(t.Context(), shipped, target, options...)
			require.NoError(t, err)
			seen := 0
			for _, q := range shipped.Queues {
				if !q.Enabled {
					continue
				}
				seen++
				require.Equal(t, test.queue, asked["projects/p/subscriptions/"+q.PushSubscription()], q.ID)
				if q.DeadLetter.Drop {
					continue
				}
				require.Equal(t, test.letter, asked["projects/p/subscriptions/"+q.DeadLetterHold()], q.ID)
				require.Equal(t, test.letter, asked["projects/p/subscriptions/"+q.DeadLetterPush()], q.ID)
			}
			require.Positive(t, seen)
		})
	}
}
