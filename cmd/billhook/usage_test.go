package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/platform/serve"
)

func TestAWrongUseExitsWith2AndSaysWhatToType(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"":                                         "billhook: say which command",
		"qeues":                                    `no command "qeues"; did you mean queues?`,
		"dlq":                                      "dlq: say which command",
		"operations aprove":                        `operations has no command "aprove"; did you mean approve?` + "\nusage: billhook operations <command>\nbillhook operations --help says more",
		"dlq rpelay paynow-events":                 "did you mean replay?",
		"dlq xylophone":                            `dlq has no command "xylophone"` + "\n",
		"events lst":                               "did you mean ls?",
		"admin import redus":                       `"redus" is none of redis, rabbitmq, postgres`,
		"completion basj":                          "did you mean bash?",
		"dlq show a b":                             "accepts between 1 and 1 arg(s), received 2\nusage: billhook dlq show <id>",
		"outbox ls now":                            "received 1",
		"products set --points 5":                  "received 0",
		"events ls --quue x":                       "unknown flag: --quue",
		"events ls --limit many":                   `invalid argument "many" for "--limit" flag: a whole number`,
		"events ls --queue":                        "flag needs an argument: --queue",
		"events ls --status DEAD_LETTERD":          "is none of PROCESSING, COMPLETED, FAILED, DEAD_LETTERED",
		"admin doctor --patience long":             `invalid duration`,
		"stock set mug --why w":                    `required flag(s) "available" not set`,
		"products set 7 --points 5":                "--why: say why, for the audit",
		"endpoints add https://a.example":          `--why: say why, for the audit`,
		"queues ls --server 127.0.0.1:8081":        "such as http://127.0.0.1:8081",
		"dev --waits long":                         "is none of short, catalog",
		"ledger export --seals --account a":        "none of the others can be",
		"journal ls --from 2026-02 -o yaml":        `"yaml" is none of table, json, csv`,
		"events try e --catalog nowhere":           "the folder nowhere has no .yaml file",
		"admin import redis nobody --from redis:x": `no queue "nobody"`,
		"send paynw":                               `"paynw" is none of generic, paynow`,
		"send paynow --sample refnd":               `"refnd" is none of`,
		"send paynow --repeat 0":                   "--repeat: say 1 or more",
	} {
		t.Run(arguments, func(t *testing.T) {
			t.Parallel()
			_, err := say(t, nil, words(arguments)...)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "\nusage: billhook")
			require.Equal(t, misused, serve.ExitCode(err))
		})
	}
}

func TestOnlyAnAnswerToAWrongQuestionIsAWrongUse(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]int{
		http.StatusBadRequest: 2, http.StatusUnauthorized: 1, http.StatusNotFound: 1, http.StatusConflict: 1, http.StatusServiceUnavailable: 1,
	} {
		worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			answering(`{"code":"some_code","detail":"Some words."}`)(w, r)
		}))
		out, err := say(t, map[string]string{"BILLHOOK_SERVER": worker + "/"}, "queues", "ls")
		require.ErrorContains(t, err, "Some words. (some_code)")
		require.Equal(t, code, serve.ExitCode(err), status)
		require.Empty(t, out, "an error is no output")
	}
	_, err := say(t, map[string]string{"BILLHOOK_SERVER": "http://127.0.0.1:1"}, "queues", "ls")
	require.Equal(t, 1, serve.ExitCode(err), "nobody listens there")
}

func TestTheServerIsThatOfTheFlagElseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	worker := func(name string) string {
		return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- name + r.URL.Path + " " + r.Header.Get("X-Operator") + " " + r.Header.Get("Authorization")
			answering(`{}`)(w, r)
		}))
	}
	environment := map[string]string{"BILLHOOK_SERVER": worker("environment"), "OPS_OPERATOR": "ada", "OPS_TOKEN": "token"}
	_, err := say(t, environment, "queues", "ls")
	require.NoError(t, err)
	require.Equal(t, "environment/v1/ops/queues ada Bearer token", <-asked)
	_, err = say(t, environment, "queues", "ls", "--server", worker("flag"))
	require.NoError(t, err)
	require.Equal(t, "flag/v1/ops/queues ada Bearer token", <-asked)
}

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
