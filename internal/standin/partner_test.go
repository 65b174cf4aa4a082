package standin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/signature"
	"billhook/internal/standin"
)

const (
	partnerSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// hook posts a webhook to the third party, signed by Standard Webhooks, and returns the status.
func hook(t *testing.T, r *standin.Receiver, secret, id, body string, at time.Time) int {
	t.Helper()
	signer, err := signature.NewSigner(signature.Standard, secret)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, standin.PartnerPath, strings.NewReader(body))
	for name, value := range signer.Sign(id, []byte(body), at) {
		request.Header.Set(name, value)
	}
	status, _, _ := serveOnce(r, request)
	return status
}

func TestTheThirdPartyTakesTheWordOfItsEndpointAlone(t *testing.T) {
	t.Parallel()
	const body = `{"type":"invoice.paid","timestamp":"2026-03-01T12:00:00Z","data":{"id":"inv-1"}}`
	r := newReceiver(t)
	require.Equal(t, http.StatusUnauthorized, hook(t, r, partnerSecret, "evt-1", body, start), "it knows no secret yet")
	require.Error(t, r.Trust("no secret"))
	require.NoError(t, r.Trust(nextSecret))
	require.NoError(t, r.Trust(partnerSecret), "in place of the one before")
	for _, step := range []struct {
		sentence, secret, body string
		at                     time.Time
		want                   int
	}{
		{"of another secret", nextSecret, body, start, http.StatusUnauthorized},
		{"stale", partnerSecret, body, start.Add(-6 * time.Minute), http.StatusUnauthorized},
		{"from the future", partnerSecret, body, start.Add(6 * time.Minute), http.StatusUnauthorized},
		{"without a type", partnerSecret, `{"data":{}}`, start, http.StatusBadRequest},
		{"valid", partnerSecret, body, start, http.StatusOK},
		{"again", partnerSecret, body, start, http.StatusOK},
	} {
		require.Equal(t, step.want, hook(t, r, step.secret, "evt-1", step.body, step.at), step.sentence)
	}
	require.Equal(t, 1, r.Applied("evt-1"))
	require.Equal(t, []string{"evt-1 applied", "evt-1 duplicate"}, outcomes(r))
}

func TestADocumentOfThatNameIsRefusedEveryTime(t *testing.T) {
	t.Parallel()
	r, err := standin.NewReceiver(standin.ReceiverConfig{
		Secrets: []string{receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
		Posts: []catalog.Post{{Path: "/products/_bulk", Form: catalog.Bulk}},
	})
	require.NoError(t, err)
	bulk := `{"index":{"_id":"p-1"}}` + "\n" + `{"event_id":"e1","event_type":"product.changed"}` + "\n" +
		`{"index":{"_id":"refuse-p-2"}}` + "\n" + `{"event_id":"e2","event_type":"product.changed"}` + "\n"
	status, answer, _ := serveOnce(r, signed(t, http.MethodPost, "/products/_bulk", bulk, start))
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"items":[{"index":{"_id":"p-1","status":201}},{"index":{"_id":"refuse-p-2","status":400}}]}`, answer)
	require.Equal(t, []string{"e1 applied", "e2 refused"}, outcomes(r))
	require.Zero(t, r.Applied("e2"))
}
