package standin_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"billhook/catalog"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
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
		{"without a type", partnerSecret, `{"data":{}}`, start, http.StatusBadRequest},
		{"valid", partnerSecret, body, start, http.StatusOK},
		{"again", partnerSecret, body, start, http.StatusOK},
	} {
		require.Equal(t, step.want, hook(t, r, step.secret, "evt-1", step.body, step.at), step.sentence)
	}
	require.Equal(t, 1, r.Applied("evt-1"))
	require.Equal(t, []string{"evt-1 applied", "evt-1 duplicate"}, outcomes(r))
}

// bulk is a request to the index, a row of testdata/bulk.yaml.
type bulk struct {
	What, Type, Item, Holds string
	Lines                   []string
	Cut                     bool
	Status                  int
}

// sent sends the request to a receiver with an index.
func (b bulk) sent(t *testing.T, r *standin.Receiver) (status int, answer string) {
	t.Helper()
	body := strings.Join(append(b.Lines, ""), "\n")
	if b.Cut {
		body = strings.TrimSuffix(body, "\n")
	}
	request := signed(t, http.MethodPost, "/products/_bulk", body, start)
	request.Header.Set("Content-Type", cmp.Or(b.Type, "application/x-ndjson"))
	status, answer, _ = serveOnce(r, request)
	return status, answer
}

func TestTheIndexTakesActionsAndDocumentsAloneAndHoldsWhatTheySay(t *testing.T) {
	t.Parallel()
	indexing := func() *standin.Receiver {
		r, err := standin.NewReceiver(standin.ReceiverConfig{
			Secrets: []string{receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
			Posts: []catalog.Post{{Path: "/products/_bulk", Form: catalog.Bulk}},
		})
		require.NoError(t, err)
		return r
	}
	text, err := os.ReadFile(filepath.Join("testdata", "bulk.yaml"))
	require.NoError(t, err)
	var all struct{ Taken, Steps []bulk }
	require.NoError(t, yaml.Unmarshal(text, &all))
	for _, b := range all.Taken {
		r := indexing()
		status, _ := b.sent(t, r)
		require.Equal(t, b.Status, status, b.What)
		require.Equal(t, b.Status == http.StatusOK, len(r.Deliveries()) == 1, b.What)
	}
	r := indexing()
	for _, b := range all.Steps {
		status, answer := b.sent(t, r)
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"items":[`+b.Item+`]}`, answer)
		require.Equal(t, b.Holds, r.Document("/products/_bulk", "a~p-1"), b.Lines)
	}
	require.Equal(t, 2, r.Applied("a~p-1"))
	require.Zero(t, r.Applied("a~refuse-p-2"))
}
