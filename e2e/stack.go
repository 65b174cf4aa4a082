// Package e2e runs whole Billhooks: the embedded stack in one process, and the real binaries on Google's
// emulators under kill -9. It uses no internals: it sends webhooks and reads their effects.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/ledger"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
)

// Secret signs every webhook of this package.
const Secret = "e2e-secret-of-more-than-24-bytes"

// DeliverySecret signs the workers' posts. It is not Secret, so that a receiver cannot sign as a sender.
const DeliverySecret = "e2e-delivery-secret-of-more-than-24-bytes"

// Queue is the queue of PayNow's orders, which the tests use.
var Queue = catalogtest.Shipped().Sources[samples.Provider].Events["ON_ORDER_COMPLETED"]

// Provision creates an installation's queues on the emulator at broker (host:port), and pushes to workerURL.
func Provision(ctx context.Context, names pubsub.Names, c *catalog.Catalog, broker, workerURL string) error {
	to := pubsub.Target{Names: names, PushBaseURL: workerURL, Emulator: true}
	_, err := pubsub.Provision(ctx, c, to, pubsub.EmulatorOptions(broker)...)
	return err
}

// Environment returns a service's variables on the emulators, as NAME=value. Without queues, all run.
func Environment(project, installation string, c *catalog.Catalog, queues []string, targets string) []string {
	environment := []string{
		"HOST=127.0.0.1", "PORT=0", "METRICS_PORT=0", "PUSH_AUTH=none", "PATH=" + os.Getenv("PATH"),
		"GOOGLE_CLOUD_PROJECT=" + project, "INSTALLATION=" + installation,
		"INGEST_DATABASE=" + strings.TrimPrefix(installation+"-ingest", "-"),
		"WEBHOOK_SECRET_PAYNOW=" + Secret, "WEBHOOK_SIGNING_SECRET=" + Secret,
		"QUEUES=" + strings.Join(queues, ","),
	}
	for _, target := range c.TargetsOf("") {
		environment = append(environment, target.URLVariable+"="+targets, target.SecretVariable+"="+DeliverySecret)
	}
	return environment
}

// Answer is an answer of the webhook service.
type Answer struct {
	Status      int    `json:"-"`
	RetryAfter  string `json:"-"`
	EventID     string `json:"event_id"`
	OrderingKey string `json:"ordering_key"`
	Code        string `json:"code"`
	Body        string `json:"-"`
}

// Product is worth PointsPerPiece points; UnknownProduct is in no catalog.
const (
	Product        = "411486491630370501"
	UnknownProduct = "700000000000000999"
	PointsPerPiece = 1000
)

// must returns the value. It is only for constants and samples, which cannot fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var (
	payNow  = must(signature.NewSigner(catalogtest.Shipped().Providers[samples.Provider].Signature, Secret))
	generic = must(signature.NewSigner(signature.Generic, Secret))
)

// Request returns a request with a JSON body and these headers.
func Request(
	ctx context.Context, method, url string, body []byte, headers map[string]string,
) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	return request, nil
}

// Webhook returns a request that is signed like PayNow's.
func Webhook(ctx context.Context, base string, body []byte) (*http.Request, error) {
	return Request(ctx, http.MethodPost, base+"/webhooks/paynow", body, payNow.Sign("", body, time.Now()))
}

// Send sends a webhook like PayNow.
func Send(ctx context.Context, base string, body []byte) (Answer, error) {
	return Do(Webhook(ctx, base, body))
}

// Produce signs a body like a producer, and posts it to the path of a queue or a topic.
func Produce(ctx context.Context, base, to string, body []byte) (Answer, error) {
	to += "/messages"
	return Do(Request(ctx, http.MethodPost, base+to, body, generic.SignFor(to, "", body, time.Now())))
}

// UntilAccepted repeats a request until it is accepted, like PayNow. sent is the time of that last request.
func UntilAccepted(ctx context.Context, send func() (Answer, error)) (sent time.Time, err error) {
	for {
		sent = time.Now()
		answer, err := send()
		if err != nil || answer.Status == http.StatusAccepted {
			return sent, err
		}
		if answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusTooManyRequests {
			return sent, fmt.Errorf("answered %d %s", answer.Status, answer.Code)
		}
		if !Wait(ctx, 100*time.Millisecond) {
			return sent, ctx.Err()
		}
	}
}

// Points returns a user's points; 0 if there is no account.
func Points(ctx context.Context, s store.Getter, uid string) (int64, error) {
	doc, err := store.Find(ctx, s, ledger.UserPoints(uid).Key(dedupe.DefaultTenant))
	balance, _ := doc.Fields["balance"].(int64)
	return balance, err
}

// Ask calls the operations API of the worker at base, as the operator who; empty: without an operator.
func Ask(ctx context.Context, base, who, method, path string, question any) (Answer, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return Answer{}, err
	}
	headers := map[string]string{}
	if who != "" { // an empty name is refused
		headers["X-Operator"] = who
	}
	return Do(Request(ctx, method, base+path, body, headers))
}

var sender = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}}

// Do sends a request and reads the whole answer, unless err says that the request could not be made.
func Do(request *http.Request, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	response, err := sender.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	retryAfter := response.Header.Get("Retry-After")
	answer := Answer{Status: response.StatusCode, RetryAfter: retryAfter, Body: string(text)}
	if strings.Contains(response.Header.Get("Content-Type"), "json") {
		err = json.Unmarshal(text, &answer)
	}
	return answer, err
}
