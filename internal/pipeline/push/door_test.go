package push_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/push"
	"billhook/internal/pipeline/rates"
)

// What comes late was let in by a door that may be gone, such as a message that has waited for a day.
func TestTheReleaseOfTheDoorIsNotedOfWhatItHasLetInLately(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	config := r.config
	config.Rates = rates.NewRecorder(rates.Config{
		Store: r.faults, Now: config.Now, Log: slog.New(slog.DiscardHandler), Breakers: func() []rates.Breaker { return nil },
		Self: rates.Service{Service: "worker", Instance: "instance-1"},
	})
	r.http = routed(push.New(config))
	for id, by := range map[string]struct {
		release string
		ago     time.Duration
	}{"e1": {"v2:1a2b3c4d", time.Second}, "e2": {"v1:00000000", time.Hour}, "e3": {"", 0}} {
		m := paid(id, known, 1)
		m.attributes[contract.AttrDoorReceived] = config.Now().Add(-by.ago).Format(time.RFC3339Nano)
		if by.release != "" {
			m.attributes[contract.AttrDoorRelease] = by.release
		}
		require.Equal(t, 200, r.deliverNow(m).code)
	}
	require.NoError(t, config.Rates.Flush(t.Context()))
	now, err := rates.Recent(t.Context(), r.faults, config.Now())
	require.NoError(t, err)
	require.Equal(t, []rates.Door{{Release: "v2:1a2b3c4d", SeenAt: config.Now()}}, now.Doors)
}
