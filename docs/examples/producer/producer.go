// Command producer puts one message on a queue of Billhook: it signs it, and sends the same bytes until
// they are accepted.
//
//	BILLHOOK_URL=http://127.0.0.1:8080 WEBHOOK_SIGNING_SECRET=... producer <subscription> <quantity>
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("usage: producer <subscription> <quantity>")
	}
	quantity, err := strconv.Atoi(arguments[1])
	if err != nil {
		return errors.New("the quantity is a whole number")
	}
	answer, err := send(ctx, "events-high", map[string]any{
		// The id is made once, before the first attempt. A service that may restart between attempts stores it.
		"id":        "usage-" + cryptorand.Text(),
		"type":      "usage_tracking",
		"timestamp": time.Now().UTC().Format(time.RFC3339),
		"version":   1,
		"data":      map[string]any{"subscription_id": arguments[0], "meter": "calls", "quantity": quantity},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, string(answer))
	return err
}

const (
	attempts  = 10
	firstWait = 500 * time.Millisecond
	mostWait  = 30 * time.Second
)

// send puts a message on a queue and returns the webhook service's answer. An error means that the message
// was refused, or that it is still to be sent, under the same id.
func send(ctx context.Context, queue string, message any) ([]byte, error) {
	body, err := json.Marshal(message) // every attempt sends these bytes
	if err != nil {
		return nil, fmt.Errorf("encode the message: %w", err)
	}
	for attempt, wait := 1, firstWait; ; attempt, wait = attempt+1, min(2*wait, mostWait) {
		status, after, answer, err := post(ctx, queue, body)
		switch {
		case err == nil && status == http.StatusAccepted:
			return answer, nil
		case err == nil && status != http.StatusTooManyRequests && status < http.StatusInternalServerError:
			return nil, fmt.Errorf("refused with %d, and would be again: %s", status, answer)
		case attempt == attempts:
			return nil, fmt.Errorf("not accepted in %d attempts, the last with %d: send it later", attempts, status)
		}
		pause := max(after, wait/2+rand.N(wait))
		fmt.Fprintf(os.Stderr, "attempt %d: %d; the next one in %v\n", attempt, status, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// post signs and posts a body once. Without an answer, the status is 0. after is the wait that it requests.
func post(
	ctx context.Context, queue string, body []byte,
) (status int, after time.Duration, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	path := "/queues/" + url.PathEscape(queue) + "/messages"
	address := cmp.Or(os.Getenv("BILLHOOK_URL"), "http://127.0.0.1:8080") + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, 0, nil, err
	}
	// Each attempt is signed anew: the webhook service refuses a signature that is older than five minutes.
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(os.Getenv("WEBHOOK_SIGNING_SECRET")))
	// With the path in it, the signature holds for this queue alone.
	mac.Write([]byte(timestamp + "." + path + "."))
	mac.Write(body)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Webhook-Timestamp", timestamp)
	request.Header.Set("X-Webhook-Destination", path)
	request.Header.Set("X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, 0, nil, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // without the header it is 0
	return response.StatusCode, time.Duration(seconds) * time.Second, answer, nil
}
