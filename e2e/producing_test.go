package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/signature"
)

// devSecret is the public secret of dev.
const devSecret = "billhook-dev-secret-for-this-machine-only"

// needed returns the path of a program that the test needs.
func needed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	emulatortest.Needs(t, err)
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
		return []string{needed(t, "python3"), filepath.Join(folder, name+".py")}
	default:
		onlyInFull(t) // as long
		node := needed(t, "node")
		tools := filepath.Join("..", "bin", "typescript", "node_modules")
		run(needed(t, filepath.Join(tools, ".bin", "tsc")), "--strict", "--erasableSyntaxOnly",
			"--noUnusedLocals", "--target", "es2022", "--module", "commonjs", "--types", "node", "--typeRoots",
			filepath.Join(tools, "@types"), "--outDir", built, filepath.Join(folder, name+".ts"))
		return []string{node, filepath.Join(built, name+".js")}
	}
}

// trouble is a proxy of a webhook service that loses requests and answers. It keeps the bodies, and checks
// that each request is signed anew.
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

func TestTheProgramsForProducersSendUntilTheirMessageIsAcceptedAndCountedOnce(t *testing.T) {
	t.Parallel()
	dev, _ := startDev(t, nil, "", "--no-samples")
	t.Cleanup(func() { dev.end(t) })
	forward := httputil.NewSingleHostReverseProxy(filetest.Must(url.Parse(dev.webhookURL))(t))
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
				proxy := httptest.NewServer(webhook)
				defer proxy.Close()
				command := exec.CommandContext(t.Context(), program[0], append(program[1:], subscription, "7")...)
				command.Env = append(os.Environ(), "BILLHOOK_URL="+proxy.URL, "WEBHOOK_SIGNING_SECRET="+devSecret)
				return command.Output()
			}
			webhook := &trouble{troubles: []func(http.ResponseWriter, *http.Request){
				refuse(http.StatusServiceUnavailable),
				func(_ http.ResponseWriter, r *http.Request) {
					forward.ServeHTTP(httptest.NewRecorder(), r) // accepted, and the answer is lost
					panic(http.ErrAbortHandler)
				},
				refuse(http.StatusTooManyRequests),
				refuse(http.StatusInternalServerError),
			}}
			answer := filetest.JSON[e2e.Answer](t, filetest.Must(send(webhook, "s-"+language))(t))
			require.Len(t, webhook.bodies, 5)
			for _, body := range webhook.bodies {
				require.Equal(t, string(webhook.bodies[0]), string(body), "the same event, to the byte")
			}
			// One more message of the same key is handled after all of them.
			said, err := billhook(t, "enqueue", "events-high", "--webhook", dev.webhookURL,
				"--type", "usage_tracking", "--key", "s-"+language)
			require.NoError(t, err, said)
			var used usage.Usage
			require.Eventually(t, func() bool {
				dev.ask(t, http.MethodGet, "/v1/ops/usage/s-"+language, nil, &used)
				return used.Meters["calls"].Entries >= 2
			}, patience, pollInterval)
			calls := used.Meters["calls"]
			const both = 7 - 1_000_000_000 // the sample's quantity is the least that there is
			require.Equal(t, []int64{both, 2}, []int64{calls.Used, calls.Entries}, "a repeated message counts once")
			var story events.Event
			dev.ask(t, http.MethodGet, "/v1/ops/events/"+answer.EventID, nil, &story)
			require.Equal(t, dedupe.Completed, story.Status)

			refused := &trouble{}
			_, err = send(refused, "no id")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 1, exit.ExitCode())
			require.Contains(t, string(exit.Stderr), "refused with 422")
			require.Len(t, refused.bodies, 1, "a refused message is not sent again")
		})
	}
}

// The programs are those of docs/guides/receive.md.
func TestTheProgramsForReceiversAcceptOnlyAGenuineDelivery(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-24-bytes"
	signer := filetest.Must(signature.NewSigner(signature.Generic, secret))(t)
	body := []byte(`{"event_id":"e1","name":"ü"}`)
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			command := example(t, language, "receiver")
			for name, test := range map[string]struct {
				after  time.Duration
				before string // the body
				change func(at, signature *string)
			}{
				"genuine":               {},
				"another body":          {before: " "},
				"too old":               {after: -6 * time.Minute},
				"too early":             {after: 6 * time.Minute},
				"another time":          {change: func(at, _ *string) { *at = fmt.Sprint(time.Now().Unix() + 1) }},
				"no time":               {change: func(at, _ *string) { *at = "" }},
				"no signature":          {change: func(_, signature *string) { *signature = "" }},
				"part of a signature":   {change: func(_, signature *string) { *signature = (*signature)[:62] }},
				"not a hex digit in it": {change: func(_, signature *string) { *signature = "ü" }},
			} {
				headers := signer.Sign("", body, time.Now().Add(test.after)) // a program may take long to start
				at, mac := headers["X-Webhook-Timestamp"], headers["X-Webhook-Signature"]
				if test.change != nil {
					test.change(&at, &mac)
				}
				run := exec.CommandContext(t.Context(), command[0], append(command[1:], at, mac)...)
				run.Env = append(os.Environ(), "DELIVERY_SIGNING_SECRET="+secret)
				run.Stdin = strings.NewReader(test.before + string(body))
				said, err := run.CombinedOutput()
				require.Equal(t, name == "genuine", err == nil, "%s: %s", name, said)
				require.Empty(t, said, "%s: no output but the exit code", name)
			}
		})
	}
}
