package pubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/pubsub"
)

// Pub/Sub keeps a message for 31 days at the most, which is what the catalog asks for, and
// Google's emulator for 7: there it is asked for no more.
func TestWhatTheCatalogKeepsIsAskedForAsFarAsItCanBe(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	declared := shipped(t)
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
			options = answered(options, func(request any) (bool, error) {
				want, ok := request.(*pubsubpb.Subscription)
				if ok {
					asked[want.Name] = want.MessageRetentionDuration.AsDuration()
				}
				return ok, nil
			})
			target := pubsub.Target{ProjectID: "p", PushBaseURL: "https://worker.example", Emulator: test.emulator}
			if !test.emulator {
				target.PushAudience, target.PushServiceAccount = "aud", "push@example.com"
			}
			_, err := pubsub.Provision(t.Context(), declared, target, options...)
			require.NoError(t, err)
			seen := 0
			for _, q := range declared.Queues {
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
