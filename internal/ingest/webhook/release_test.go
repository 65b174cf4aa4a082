package webhook_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

func TestAMessageSaysWhichReleaseOfTheDoorHasLetItIn(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{"v1.4.0:1a2b3c4d": "v1.4.0:1a2b3c4d", "": ""} {
		d := open(t, func(c *webhook.Config) { c.Release = release })
		require.Equal(t, http.StatusAccepted, d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))).Code)
		said, is := d.broker.got[0].message.Attributes[contract.AttrDoorRelease]
		require.Equal(t, want, said)
		require.Equal(t, want != "", is)
	}
}
