package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestTheShellCompletesValues(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	queue := c.Queues[0].ID
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{
			"/v1/ops/dead-letters/reasons?queue=" + queue: `{"items":[{"reason":"unknown_product","count":3},{"others":true,"count":1}]}`,
			"/v1/ops/events?limit=20":                     `{"items":[{"event_id":"e-7","event_type":"order.paid","status":"FAILED"}]}`,
			"/v1/ops/operations?limit=20":                 `{"items":[{"id":"op-7","kind":"replay","filter":{"queue":"q"},"progress":"running"}]}`,
			"/v1/ops/endpoints?limit=50":                  `{"items":[{"id":"partner-7","state":"enabled"}]}`,
			"/v1/ops/products":                            `{"items":[{"id":"new-product"}]}`,
		}[r.URL.RequestURI()]
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}))
	for line, want := range map[string]string{
		"dlq ls |":                          "\n" + queue + "\t",
		"enqueue |":                         "\n" + queue + "\t",
		"events ls --queue |":               "\n" + queue + "\t",
		"events ls --status |":              "\nDEAD_LETTERED\n",
		"events ls --type |":                "\norder.shipped\n",
		"dlq ls x --state |":                "\ncorrected\n",
		"dlq ls " + queue + " --reason |":   "\nunknown_product\n",
		"events show |":                     "\ne-7\torder.paid FAILED\n",
		"operations approve |":              "\nop-7\treplay of q, running\n",
		"endpoints show |":                  "\npartner-7\tenabled\n",
		"products set |":                    "\nnew-product\n",
		"products retire |":                 "\n411486491630370501\n",
		"send |":                            "\npaynow\n",
		"send paynow --sample |":            "\nrefund\n",
		"dlq show |":                        "\n:4\n", // nothing, and no file
		"ledger check-proof |":              "\n:0\n", // files
		"events ls --queue nobody --type |": "\norder.shipped\n",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			given, _, _ := strings.Cut(line, "|")
			arguments := append(append([]string{"__complete"}, strings.Fields(given)...), "")
			out, err := say(t, map[string]string{"BILLHOOK_SERVER": worker}, arguments...)
			require.NoError(t, err)
			require.Contains(t, "\n"+out, want)
			out, err = say(t, map[string]string{"BILLHOOK_SERVER": "http://127.0.0.1:1"}, arguments...)
			require.NoError(t, err, "without a worker")
			require.Contains(t, "\n"+out, "\n:")
		})
	}
}
