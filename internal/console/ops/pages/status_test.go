package pages_test

import (
	"net/http"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
)

func TestTheAuditLeadsToWhatWasChangedAndToItsNextPageWithTheFilters(t *testing.T) {
	t.Parallel()
	site := serving(t, answers{"/v1/ops/audit?kind=product&limit=50": ops.List[audit.Entry]{Next: "more", Items: []audit.Entry{
		{Kind: "product", Subject: "hat/1", Action: "set", Who: "ada", Why: "<dearer>", At: noon, Before: map[string]any{"points": 5}, After: map[string]any{"points": 6}},
		{Kind: "moon", Subject: "m", Action: "land", Who: "bob", Why: "w", At: noon},
	}}})
	status, body := look(t, site, "/ops/audit?kind=product")
	require.Equal(t, http.StatusOK, status)
	for _, part := range []string{
		`href="/ops/products/hat%2F1"`, `<span class="id">m</span>`, "points 5", "points 6", "&lt;dearer&gt;", `href="/ops/audit?kind=product&amp;page=more"`, "<option selected>product</option>",
	} {
		require.Contains(t, body, part)
	}
}

func TestTheCatalogShowsAContractWithItsSchemaExampleAndWhoUsesIt(t *testing.T) {
	t.Parallel()
	site := serving(t, answers{"/v1/ops/catalog/contracts/message.v1:order.created:1": ops.ContractDeclaration{
		DeclaredContract: ops.DeclaredContract{ID: "message.v1:order.created:1", Type: "order.created", Version: 1},
		Members:          []ops.DeclaredMember{{Name: "items[].product_id", Shape: "id", Required: true}},
		Schema:           jsontext.Value(`{"title":"t"}`), Example: jsontext.Value(`{"total":12345678901234567890}`),
		ConsumedBy: []ops.Consumer{{Queue: "one-queue", Enabled: true, Types: []string{"order.created"}}},
		ProducedBy: []ops.Producer{{Kind: ops.ProducerHandler, Name: "points.credit", Queue: "other-queue", To: "one-queue"}},
	}})
	status, body := look(t, site, "/ops/catalog/contracts/message.v1:order.created:1")
	require.Equal(t, http.StatusOK, status)
	for _, part := range []string{"items[].product_id", "{\n  &#34;title&#34;: &#34;t&#34;\n}", "12345678901234567890", `href="/ops/catalog/queues/one-queue"`, `href="/ops/catalog/queues/other-queue"`} {
		require.Contains(t, body, part)
	}
}

func TestTheStatusShowsWhatDiffersBeforeAllElse(t *testing.T) {
	t.Parallel()
	site := serving(t, answers{"/v1/ops/status": ops.Status{
		Self: ops.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one"}, Catalog: "1a2b3c4d", Deployed: []string{"00000000"}, Agreement: ops.Differs,
		Services:      []ops.ServiceStatus{{Service: rates.Service{Service: "worker", Instance: "one"}, SeenSeconds: 61, Agreement: ops.Differs}},
		Configuration: []env.Setting{{Name: "OPS_TOKEN", Value: "[redacted]", About: "the tokens"}, {Name: "POOL", About: "the pool"}},
		Doctor: ops.Diagnosis{ExaminedAt: noon, Examination: ops.Examination{Unread: 7, Findings: []ops.Finding{
			{Queue: "one-queue", Kind: "subscription", ID: "one-queue-push", Code: "wrong_filter", Have: "none", Want: "x", Effect: "Messages are passed by."},
		}}},
	}})
	status, body := look(t, site, "/ops/status")
	require.Equal(t, http.StatusOK, status)
	for _, part := range []string{
		"differs from the catalog: 1 finding, below", "deployed from another catalog", "1m 1s ago", "[redacted]", "not set", "wrong_filter", "Messages are passed by.", "may not look at 7 topics", `status-warn">differs`,
	} {
		require.Contains(t, body, part)
	}
}
