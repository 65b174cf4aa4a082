package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"billhook/e2e"
	"billhook/e2e/chaos/arm"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

const (
	// senders is how many requests run at once, late ones included. The emulator queues
	// commits: more requests would only make the queue longer.
	senders = 40
	// ackDeadline is the time after which a delivery without an answer is repeated. Its earlier
	// request may still run.
	ackDeadline = 600 * time.Millisecond
	// forgotten is the time after which the client gives up a request that it did not end at
	// the deadline.
	forgotten = 3 * time.Second
)

// client is the push client of a broker: it repeats each delivery until it is acknowledged.
type client struct {
	http    *http.Client
	targets [2]*target
	slots   chan struct{}
	started time.Time
	// late are the requests after their deadline.
	late sync.WaitGroup

	mu sync.Mutex
	// begun counts the messages that workers have published anew, and open those of them that are
	// not acknowledged.
	begun, open int
	pushes      map[string]int
	// acked counts acknowledged deliveries of the plan.
	acked int
	// unanswered counts requests without an answer by the deadline. refused counts answers that
	// do not acknowledge.
	unanswered, refused int
}

// run makes every delivery of the plan and returns when all are acknowledged.
func (c *client) run(ctx context.Context, p *plan) error {
	var all sync.WaitGroup
	for _, d := range p.single {
		all.Go(func() { c.deliver(ctx, d) })
	}
	for _, walk := range p.byKey {
		all.Go(func() {
			for _, d := range walk {
				c.deliver(ctx, d)
			}
		})
	}
	all.Wait()
	c.late.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("not everything was acknowledged: %w", ctx.Err())
	}
	return nil
}

// again delivers a message that a worker has published on the topic of an arm. It returns at once.
func (c *client) again(ctx context.Context, to *arm.Arm, m contract.Message) {
	c.mu.Lock()
	c.begun++
	c.open++
	d := push{
		event: &event{arm: to, due: time.Since(c.started)}, messageID: fmt.Sprintf("again-%06d", c.begun), republished: &m,
		counted: c.begun%2 == 0, seed: uint64(c.begun),
	}
	d.due = d.event.due
	c.mu.Unlock()
	go func() {
		c.deliver(ctx, d)
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
	}()
}

// idle reports whether nothing is under way to a worker, and how many messages were published anew.
func (c *client) idle() (begun int, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.open == 0 && len(c.slots) == 0
}

func (c *client) deliver(ctx context.Context, d push) {
	random := rand.New(rand.NewPCG(d.seed, 3))
	pause := d.due - time.Since(c.started)
	for n := 1; e2e.Wait(ctx, pause); n++ {
		if c.attempt(ctx, random, d, n) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.acked++
			return
		}
		pause = 40*time.Millisecond + time.Duration(random.Float64()*float64(300*time.Millisecond))
	}
}

// progress prints the progress until ctx ends.
func (c *client) progress(ctx context.Context, stdout io.Writer) {
	for e2e.Wait(ctx, 30*time.Second) {
		c.mu.Lock()
		_, _ = fmt.Fprintf(stdout, "%s: %d deliveries acknowledged\n", time.Since(c.started).Round(time.Second), c.acked)
		c.mu.Unlock()
	}
}

// attempt sends one delivery to one of the workers. It reports whether it was acknowledged by
// the deadline.
func (c *client) attempt(ctx context.Context, random *rand.Rand, d push, n int) bool {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	limit := forgotten
	if random.IntN(2) == 0 {
		limit = ackDeadline
	}
	url := c.targets[random.IntN(len(c.targets))].process.Load().URL
	answered := make(chan bool, 1)
	c.late.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		answered <- c.send(ctx, url, d, n)
		<-c.slots
	})
	select {
	case acked := <-answered:
		return acked
	case <-time.After(ackDeadline):
		return false
	}
}

// send posts the delivery as Pub/Sub does and reports whether the answer acknowledges it.
func (c *client) send(ctx context.Context, url string, d push, n int) bool {
	body, err := d.body(n)
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/push/"+d.arm.Name, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	acked := false
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		acked = err == nil && (response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNoContent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes[d.arm.Name]++
	switch {
	case err != nil:
		c.unanswered++
	case !acked:
		c.refused++
	}
	return acked
}

// happened is when everything happened that the events tell of.
var happened = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// invoice is the data of an event of the journal.
type invoice struct {
	InvoiceID string `json:"invoice_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
}

// body returns the wrapped push body of the n-th attempt.
func (d push) body(n int) ([]byte, error) {
	if d.republished != nil {
		return d.wrapped(standin.Message{ID: d.messageID, PublishTime: time.Now().UTC(), Message: *d.republished}, n)
	}
	payload := contract.Payload{SubscriptionID: d.key, Cycle: d.cycle}
	if d.arm.Money {
		payload = contract.Payload{PaymentID: d.key}
	}
	envelope := contract.Of(&contract.Envelope{ID: d.id, Action: d.arm.EventType(), CreatedAt: happened.Format(time.RFC3339), Payload: payload})
	if d.arm.Journal {
		envelope = contract.Of(&contract.Event{
			ID: d.id, Type: d.arm.EventType(), Timestamp: happened.Format(time.RFC3339), Version: 1,
			Data: invoice{InvoiceID: d.key, Amount: arm.Amount, Currency: arm.Currency},
		})
	}
	data, err := envelope.Append(nil)
	if err != nil {
		return nil, err
	}
	message := standin.Message{ID: d.messageID, PublishTime: time.Now().UTC(), Message: contract.Message{Data: data}}
	attributes := envelope.Attributes()
	attributes.OrderingKey = d.key
	message.Attributes = attributes.Map()
	for name, stall := range map[string]time.Duration{arm.StallBefore: d.stallBefore, arm.StallAfter: d.stallAfter} {
		if stall > 0 && n == 1 {
			message.Attributes[name] = strconv.FormatInt(stall.Milliseconds(), 10)
		}
	}
	if d.arm.Ordered {
		message.OrderingKey = d.key
	}
	return d.wrapped(message, n)
}

func (d push) wrapped(message standin.Message, n int) ([]byte, error) {
	if !d.counted {
		n = 0
	}
	return message.PushBody(d.arm.Name+"-push", n)
}
