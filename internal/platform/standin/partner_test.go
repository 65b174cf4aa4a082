package standin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// indexing is a receiver with an index.
func indexing(t *testing.T) *standin.Receiver {
	t.Helper()
	r, err := standin.NewReceiver(standin.ReceiverConfig{
		Secrets: []string{receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
		Posts: []catalog.Post{{Path: "/products/_bulk", Form: catalog.Bulk}},
	})
	require.NoError(t, err)
	return r
}

func bulk(t *testing.T, r *standin.Receiver, contentType, body string) (status int, answer string) {
	t.Helper()
	request := signed(t, http.MethodPost, "/products/_bulk", body, start)
	request.Header.Set("Content-Type", contentType)
	status, answer, _ = serveOnce(r, request)
	return status, answer
}

func TestTheIndexTakesActionsAndDocumentsAndNothingElse(t *testing.T) {
	t.Parallel()
	const ndjson, document = "application/x-ndjson", `{"document_id":"p-1","price":"9.99","tenant":"a"}`
	for name, test := range map[string]struct {
		contentType, body string
		status            int
	}{
		"a document of a version":        {ndjson, `{"index":{"_id":"a~p-1","version":3,"version_type":"external"}}` + "\n" + document + "\n", 200},
		"a delete has no document":       {ndjson, `{"delete":{"_id":"a~p-1"}}` + "\n", 200},
		"a delete with a document":       {ndjson, `{"delete":{"_id":"a~p-1"}}` + "\n" + document + "\n", 400},
		"an index without a document":    {ndjson, `{"index":{"_id":"a~p-1"}}` + "\n", 400},
		"no newline at the end":          {ndjson, `{"index":{"_id":"a~p-1"}}` + "\n" + document, 400},
		"an action of another name":      {ndjson, `{"forget":{"_id":"a~p-1"}}` + "\n", 400},
		"two actions in one":             {ndjson, `{"delete":{"_id":"a~p-1"},"index":{"_id":"a~p-1"}}` + "\n", 400},
		"a parameter that there is not":  {ndjson, `{"delete":{"_id":"a~p-1","if_seen":1}}` + "\n", 400},
		"no id":                          {ndjson, `{"delete":{}}` + "\n", 400},
		"a version of no type":           {ndjson, `{"delete":{"_id":"a~p-1","version":3}}` + "\n", 400},
		"a document that is none":        {ndjson, `{"index":{"_id":"a~p-1"}}` + "\n[1]\n", 400},
		"nothing":                        {ndjson, ``, 400},
		"a type that is not that of one": {"application/json", `{"delete":{"_id":"a~p-1"}}` + "\n", 415},
	} {
		r := indexing(t)
		status, _ := bulk(t, r, test.contentType, test.body)
		require.Equal(t, test.status, status, name)
		require.Equal(t, test.status == 200, len(r.Deliveries()) == 1, name)
	}
}

func TestTheIndexHoldsWhatItsActionsSay(t *testing.T) {
	t.Parallel()
	r := indexing(t)
	at := func(version int) string {
		return fmt.Sprintf(`{"_id":"a~p-1","version":%d,"version_type":"external"}`, version)
	}
	for _, step := range []struct{ body, item, holds string }{
		{`{"delete":{"_id":"a~p-1"}}`, `{"delete":{"_id":"a~p-1","status":404}}`, ``},
		{`{"index":` + at(2) + "}\n" + `{"price":"2.00"}`, `{"index":{"_id":"a~p-1","status":201}}`, `{"price":"2.00"}`},
		{`{"index":` + at(1) + "}\n" + `{"price":"1.00"}`, `{"index":{"_id":"a~p-1","status":409}}`, `{"price":"2.00"}`},
		{`{"delete":` + at(2) + "}", `{"delete":{"_id":"a~p-1","status":409}}`, `{"price":"2.00"}`},
		{`{"delete":` + at(3) + "}", `{"delete":{"_id":"a~p-1","status":201}}`, ``},
		{`{"index":` + at(3) + "}\n" + `{"price":"2.00"}`, `{"index":{"_id":"a~p-1","status":409}}`, ``},
		{`{"index":{"_id":"a~refuse-p-2"}}` + "\n" + `{"price":"1.00"}`, `{"index":{"_id":"a~refuse-p-2","status":400}}`, ``},
		{`{"index":{"_id":"a~p-1"}}` + "\n" + `{"event_id":"e1","event_type":"product.updated","data":{"price":"1.00"}}`, `{"index":{"_id":"a~p-1","status":400}}`, ``},
	} {
		status, answer := bulk(t, r, "application/x-ndjson", step.body+"\n")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"items":[`+step.item+`]}`, answer)
		require.Equal(t, step.holds, r.Document("/products/_bulk", "a~p-1"), step.body)
	}
	require.Equal(t, 2, r.Applied("a~p-1"))
	require.Zero(t, r.Applied("a~refuse-p-2"))
}
