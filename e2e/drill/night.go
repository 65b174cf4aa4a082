package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/standin"
)

// night is one night on call.
type night struct {
	binary, folder string
	at             *running
	out            io.Writer
	patience       time.Duration
}

// incident is what wakes somebody, and the way back to normal.
type incident struct {
	name, queue string
	// provoke brings it about, with so many events.
	events  int
	provoke func(ctx context.Context, n *night) error
	// reason is that of the dead letters, and understood reports whether one of them says what is wrong.
	reason     string
	understood func(ops.Letter) bool
	// mend removes the cause, which the dead letter has told.
	mend func(ctx context.Context, n *night, letter ops.Letter) error
	why  string
}

// incidentsOf are those of the night, on a catalog's queues. Each has a cause of its own and the same way back.
func incidentsOf(c *catalog.Catalog) []incident {
	orders, _ := c.HandledBy("points.credit")
	told, _ := c.EmitsTo("subscriptions.record")
	return []incident{
		{
			name: "unknown product", queue: orders.ID, reason: "unknown_product", why: "product added", events: 3,
			provoke: func(ctx context.Context, n *night) error {
				return n.ask(ctx, nil, "send", "paynow", "--sample", "order_completed_unknown_product_no_uid", "--repeat", "3", "--webhook", n.at.webhook)
			},
			understood: func(l ops.Letter) bool { return l.Detail != "" }, // the product's id
			mend: func(ctx context.Context, n *night, l ops.Letter) error {
				return n.ask(ctx, nil, "products", "set", l.Detail, "--points", "500", "--why", "sold since today")
			},
		},
		{
			name: "failing service", queue: told.ID, reason: "callee_failed_503", why: "the service is back", events: 1,
			provoke: func(ctx context.Context, n *night) error {
				if err := n.tell(ctx, standin.Fail, 1000); err != nil {
					return err
				}
				return n.ask(ctx, nil, "send", "paynow", "--sample", "subscription_renewed", "--webhook", n.at.webhook)
			},
			understood: func(l ops.Letter) bool { return strings.HasPrefix(l.Reason, "callee_") }, // the service's answer
			mend:       func(ctx context.Context, n *night, _ ops.Letter) error { return n.tell(ctx, standin.Normal, 1) },
		},
	}
}

// spend goes through all incidents, and prints what each has taken.
func (n *night) spend(ctx context.Context) error {
	var lines []string
	c, err := catalog.Load("")
	if err != nil {
		return err
	}
	for _, i := range incidentsOf(c) {
		_, _ = fmt.Fprintf(n.out, "\n== %s\n", i.name)
		took, err := n.handle(ctx, i)
		if err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
		lines = append(lines, fmt.Sprintf("%-16s  %6.1f  %10.1f  %6.1f  %9.1f", i.name, took.found, took.understood, took.mended, took.processed))
	}
	_, _ = fmt.Fprintf(n.out, "\nSeconds from the alert\n%-16s  %6s  %10s  %6s  %9s\n%s\n", "", "found", "understood", "mended", "processed", strings.Join(lines, "\n"))
	return nil
}

// seconds are those from the alert to the end of each step.
type seconds struct{ found, understood, mended, processed float64 }

// handle provokes an incident, waits for its alert, and follows the runbook on dead letters.
func (n *night) handle(ctx context.Context, i incident) (took seconds, err error) {
	if err := i.provoke(ctx, n); err != nil {
		return took, err
	}
	if err := n.until(ctx, "an alert", func() (bool, error) { return n.alert(ctx, i.queue) }); err != nil {
		return took, err
	}
	alert := time.Now()
	since := func() float64 { return time.Since(alert).Seconds() }
	_, _ = fmt.Fprintf(n.out, "   ALERT on %s\n", i.queue)

	var letters ops.DeadLetters
	if err := n.repeat(ctx, &letters, func() bool { return len(letters.Items) == i.events }, "dlq", "ls", i.queue, "--reason", i.reason); err != nil {
		return took, err
	}
	took.found = since()

	var letter ops.Letter
	if err := n.ask(ctx, &letter, "dlq", "show", letters.Items[0].ID); err != nil {
		return took, err
	}
	var event ops.Event
	if err := n.ask(ctx, &event, "events", "show", letter.EventID, "--queue", i.queue); err != nil {
		return took, err
	}
	if event.Status != dedupe.DeadLettered || len(event.DeadLetters) == 0 || !i.understood(letter) {
		return took, fmt.Errorf("neither the dead letter nor the event says what is wrong: %s %s %s", event.Status, letter.Reason, letter.Detail)
	}
	took.understood = since()

	if err := i.mend(ctx, n, letter); err != nil {
		return took, err
	}
	took.mended = since()

	var tried dryrun.Trial
	if err := n.ask(ctx, &tried, "events", "try", letter.EventID, "--queue", i.queue); err != nil {
		return took, err
	}
	var op deadletter.Operation
	if err := n.ask(ctx, &op, "dlq", "replay", i.queue, "--reason", i.reason, "--why", i.why, "--yes"); err != nil {
		return took, err
	}
	for _, l := range letters.Items {
		if err := n.repeat(ctx, &event, func() bool { return event.Status == dedupe.Completed }, "events", "show", l.EventID, "--queue", i.queue); err != nil {
			return took, err
		}
	}
	took.processed = since()
	return took, n.until(ctx, "the end of the alert", func() (bool, error) {
		on, err := n.alert(ctx, i.queue)
		return !on, err
	})
}

// alert reports whether the queue stands out in the list of queues.
func (n *night) alert(ctx context.Context, queue string) (bool, error) {
	var queues ops.Queues
	if err := n.quietly(ctx, &queues, "queues"); err != nil {
		return false, err
	}
	for _, q := range queues.Items {
		if q.ID == queue {
			return q.DeadLetters.Alert, nil
		}
	}
	return false, fmt.Errorf("no queue %s is listed", queue)
}

// repeat runs a command until its answer is as it should be, and prints it once.
func (n *night) repeat(ctx context.Context, answer any, so func() bool, arguments ...string) error {
	n.show(arguments)
	return n.until(ctx, strings.Join(arguments, " "), func() (bool, error) {
		err := n.quietly(ctx, answer, arguments...)
		return so(), err
	})
}

// ask prints a command, runs it, and reads its JSON into answer, nil for none.
func (n *night) ask(ctx context.Context, answer any, arguments ...string) error {
	n.show(arguments)
	return n.quietly(ctx, answer, arguments...)
}

// show prints a command as a person types it.
func (n *night) show(arguments []string) {
	words := slices.Clone(arguments)
	for i, word := range words {
		if strings.Contains(word, " ") {
			words[i] = strconv.Quote(word)
		}
	}
	_, _ = fmt.Fprintf(n.out, "$ bin/billhook %s\n", strings.Join(words, " "))
}

func (n *night) quietly(ctx context.Context, answer any, arguments ...string) error {
	command := exec.CommandContext(ctx, n.binary, append(arguments, "--json")...)
	command.Env = []string{"HOME=" + n.folder, "OPS_OPERATOR=on-call", "BILLHOOK_SERVER=" + n.at.worker}
	var failed bytes.Buffer
	command.Stderr = &failed
	said, err := command.Output()
	if err != nil {
		return fmt.Errorf("billhook %s: %w: %s%s", strings.Join(arguments, " "), err, said, failed.Bytes())
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(said, answer); err != nil {
		return fmt.Errorf("billhook %s: %w", strings.Join(arguments, " "), err)
	}
	return nil
}

// tell has the service that dev stands in for behave otherwise.
func (n *night) tell(ctx context.Context, mode standin.Mode, times int) error {
	_, _ = fmt.Fprintf(n.out, "   (the service: %s)\n", mode)
	body, err := json.Marshal(map[string]any{"mode": mode, "times": times})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.at.service+"/tell", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the service answers %d", response.StatusCode)
	}
	return nil
}

// look is how often until looks.
const look = 250 * time.Millisecond

// until waits for something to be so.
func (n *night) until(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		ok, err := so()
		if ok && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited too long for %s", what), err)
		}
	}
}
