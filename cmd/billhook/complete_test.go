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
			"/v1/ops/events":     `{"items":[{"event_id":"e-7","queue":"q","status":"FAILED"}]}`,
			"/v1/ops/operations": `{"items":[{"id":"op-7","kind":"replay","filter":{"queue":"q"},"progress":"running"}]}`,
			"/v1/ops/endpoints":  `{"items":[{"id":"partner-7","state":"enabled"}]}`,
			"/v1/ops/products":   `{"items":[{"id":"new-product"}]}`,
		}[r.URL.RequestURI()]
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}))
	for line, want := range map[string]string{
		"dlq ls |":               "\n" + queue + "\n",
		"enqueue |":              "\n" + queue + "\n",
		"events ls --queue |":    "\n" + queue + "\n",
		"events ls --status |":   "\nDEAD_LETTERED\n",
		"dlq ls x --state |":     "\ncorrected\n",
		"events show |":          "\ne-7\tq\n",
		"operations approve |":   "\nop-7\treplay\n",
		"endpoints show |":       "\npartner-7\n",
		"products set |":         "\nnew-product",
		"send paynow --sample |": "\nrefund\n",
		"catalog show |":         "\n" + queue + "\n",
		"dlq show |":             "\n:4\n", // nothing, and no file
		"ledger check-proof |":   "\n:0\n", // files
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
