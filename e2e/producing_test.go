package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/signature"
)

// devSecret is the public one that dev accepts.
const devSecret = "billhook-dev-secret-for-this-machine-only"

// needed returns the path of a program. Where it is not installed the test is skipped, and with
// REQUIRE_EMULATORS=1 it fails.
func needed(t *testing.T, program, install string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skipf("%s is not installed: %s", program, install)
	}
	require.NoError(t, err, install)
	return path
}

// example is one of docs/examples, ready to run.
func example(t *testing.T, language, name string) (command []string) {
	t.Helper()
	folder := filepath.Join("..", "docs", "examples", name)
	built := t.TempDir()
	run := func(command string, arguments ...string) {
		output, err := exec.CommandContext(t.Context(), command, arguments...).CombinedOutput()
		require.NoError(t, err, string(output))
	}
	switch language {
	case "Go":
		onlyInFull(t) // its compiler takes long
		run("go", "build", "-o", filepath.Join(built, name), "billhook/docs/examples/"+name)
		return []string{filepath.Join(built, name)}
	case "Python":
		return []string{needed(t, "python3", "apt-get install python3"), filepath.Join(folder, name+".py")}
	default:
		onlyInFull(t) // as long
		node, tools := needed(t, "node", "apt-get install nodejs npm"), filepath.Join("..", "bin", "typescript",
			"node_modules")
		run(needed(t, filepath.Join(tools, ".bin", "tsc"), "make typescript"),
			"--strict", "--erasableSyntaxOnly", "--noUnusedLocals", "--target", "es2022", "--module", "commonjs",
			"--types", "node",
			"--typeRoots", filepath.Join(tools, "@types"), "--outDir", built, filepath.Join(folder, name+".ts"))
		return []string{node, filepath.Join(built, name+".js")}
	}
}

// trouble is a way to a webhook service on which requests and answers are lost. It keeps the bodies, and
// passes only what is signed now.
type trouble struct {
	t        *testing.T
	forward  http.Handler
	troubles []func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	bodies [][]byte
}

func (d *trouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	verifier, err := signature.NewVerifier(signature.Generic, []string{devSecret}, 5*time.Minute, time.Now)
	if err != nil || verifier.Verify(r.Header.Values, body) != nil {
		d.t.Errorf("a request is not signed")
	}
	d.mu.Lock()
	d.bodies = append(d.bodies, body)
	n := len(d.bodies)
	d.mu.Unlock()
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if n <= len(d.troubles) {
		d.troubles[n-1](w, r)
		return
	}
	d.forward.ServeHTTP(w, r)
}

func TestTheProgramsForProducersSendUntilTheirMessageIsTakenAndItIsCountedOnce(t *testing.T) {
	t.Parallel()
	dev, _ := startDev(t, nil, "", "--no-samples")
	t.Cleanup(func() { dev.end(t) })
	at := filetest.Must(url.Parse(dev.webhookURL))(t)
	forward := httputil.NewSingleHostReverseProxy(at)
	refuse := func(status int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
		}
	}
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			program := example(t, language, "producer")
			send := func(webhook *trouble, subscription string) (said []byte, err error) {
				webhook.t, webhook.forward = t, forward
				way := httptest.NewServer(webhook)
				defer way.Close()
				command := exec.CommandContext(t.Context(), program[0], append(program[1:], subscription, "7")...)
				command.Env = append(os.Environ(), "BILLHOOK_URL="+way.URL, "WEBHOOK_SIGNING_SECRET="+devSecret)
				return command.Output()
			}
			webhook := &trouble{troubles: []func(http.ResponseWriter, *http.Request){
				refuse(http.StatusServiceUnavailable),
				func(_ http.ResponseWriter, r *http.Request) {
					forward.ServeHTTP(httptest.NewRecorder(), r) // taken, and the answer is lost
					panic(http.ErrAbortHandler)
				},
				refuse(http.StatusTooManyRequests),
				refuse(http.StatusInternalServerError),
			}}
			said := filetest.Must(send(webhook, "s-"+language))(t)
			var answer struct {
				EventID string `json:"event_id"`
			}
			require.NoError(t, json.Unmarshal(said, &answer), string(said))
			require.Len(t, webhook.bodies, 5)
			for _, body := range webhook.bodies {
				require.Equal(t, string(webhook.bodies[0]), string(body), "the same event, to the byte")
			}
			// One more message of the same key comes behind all of them.
			behind := filepath.Join(t.TempDir(), "behind.json")
			message := `{"id":"behind-` + language + `","type":"usage_tracking","version":1,` +
				`"data":{"subscription_id":"s-` + language + `","meter":"calls","quantity":1}}`
			require.NoError(t, os.WriteFile(behind, []byte(message), 0o600))
			told, err := billhook(t, "enqueue", "events-high", "--webhook", dev.webhookURL, "-f", behind)
			require.NoError(t, err, told)
			var used usage.Usage
			require.Eventually(t, func() bool {
				dev.ask(t, http.MethodGet, "/v1/ops/usage/s-"+language, nil, &used)
				return used.Meters["calls"].Entries >= 2
			}, patience, pollInterval)
			require.Equal(t, []int64{8, 2}, []int64{used.Meters["calls"].Used, used.Meters["calls"].Entries},
				"of two messages of one id one counts")
			var story events.Event
			dev.ask(t, http.MethodGet, "/v1/ops/events/"+answer.EventID, nil, &story)
			require.Equal(t, dedupe.Completed, story.Status)

			refused := &trouble{}
			_, err = send(refused, "no id")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 1, exit.ExitCode())
			require.Contains(t, string(exit.Stderr), "refused with 422")
			require.Len(t, refused.bodies, 1, "what is refused is not sent again")
		})
	}
}

// TestTheProgramsForReceiversTellAGenuineDelivery runs those of docs/guides/receive.md.
func TestTheProgramsForReceiversTellAGenuineDelivery(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-24-bytes"
	signer := filetest.Must(signature.NewSigner(signature.Generic, secret))(t)
	body := []byte(`{"event_id":"e1","name":"ü"}`)
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			command := example(t, language, "receiver")
			for name, test := range map[string]struct {
				after   time.Duration
				body    []byte
				change  func(headers map[string]string)
				genuine bool
			}{
				"genuine":      {0, body, nil, true},
				"another body": {0, append([]byte(" "), body...), nil, false},
				"too old":      {-6 * time.Minute, body, nil, false},
				"too early":    {6 * time.Minute, body, nil, false},
				"another time": {
					0, body, func(h map[string]string) {
						h["X-Webhook-Timestamp"] = fmt.Sprint(time.Now().Unix() + 1)
					}, false,
				},
				"no time":      {0, body, func(h map[string]string) { h["X-Webhook-Timestamp"] = "" }, false},
				"no signature": {0, body, func(h map[string]string) { h["X-Webhook-Signature"] = "" }, false},
				"part of a signature": {
					0, body, func(h map[string]string) { h["X-Webhook-Signature"] = h["X-Webhook-Signature"][:62] }, false,
				},
				"what is no signature": {0, body, func(h map[string]string) { h["X-Webhook-Signature"] = "ü" }, false},
			} {
				headers := signer.Sign("", body, time.Now().Add(test.after)) // a program may take long to start
				if test.change != nil {
					test.change(headers)
				}
				run := exec.CommandContext(t.Context(), command[0], append(command[1:], headers["X-Webhook-Timestamp"],
					headers["X-Webhook-Signature"])...)
				run.Env, run.Stdin = append(os.Environ(), "DELIVERY_SIGNING_SECRET="+secret), bytes.NewReader(test.body)
				said, err := run.CombinedOutput()
				require.Equal(t, test.genuine, err == nil, "%s: %s", name, said)
				require.Empty(t, said, "%s: no error but the answer", name)
			}
		})
	}
}
