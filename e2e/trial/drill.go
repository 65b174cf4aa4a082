package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/standin"
)

// drill is a night on call: it provokes what wakes people, and follows the runbook with bin/billhook as a process and
// nothing else. It fails unless every event is processed in the end and no alert is left.
func drill(flags *flag.FlagSet) func(*run) {
	stack := flags.String("stack", "emulators", "what it runs on: emulators, or dev for the stand-ins")
	return func(r *run) {
		arguments, known := map[string][]string{"emulators": {"--emulators"}, "dev": {}}[*stack]
		if !known {
			r.Fatalf("-stack: must be emulators or dev")
		}
		n := &night{run: r, binary: r.program(), home: r.TempDir()}
		n.begin(arguments)
		r.printf("billhook dev is up on %s.\n", *stack)
		lines := []string{fmt.Sprintf("\nSeconds from the alert\n%-16s  %6s  %10s  %6s  %9s", "", "found", "understood", "mended", "processed")}
		c := catalogtest.Shipped()
		for _, i := range incidents(c) {
			r.printf("\n== %s\n", i.name)
			lines = append(lines, n.handle(i))
		}
		r.printf("%s\n", strings.Join(lines, "\n"))
	}
}

func (r *run) program() string {
	binary := filepath.Join(r.TempDir(), "billhook")
	said, err := exec.CommandContext(r.ctx, "go", "build", "-ldflags=-s -w", "-o", binary, "billhook/cmd/billhook").CombinedOutput()
	if err != nil {
		r.Fatalf("build billhook: %w: %s", err, said)
	}
	return binary
}

type night struct {
	*run
	binary, home             string
	webhook, worker, service string
}

var isUp = regexp.MustCompile(`webhook (http://\S+), worker (http://\S+),\s+stand-ins for the services that it calls (http://\S+)\.`)

func (n *night) begin(arguments []string) {
	dev := exec.CommandContext(n.ctx, n.binary, append([]string{"dev", "--no-samples", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0"}, arguments...)...)
	dev.Cancel = func() error { return dev.Process.Signal(os.Interrupt) }
	dev.WaitDelay = 20 * time.Second
	dev.Stderr = os.Stderr
	stdout, err := dev.StdoutPipe()
	n.must(err)
	n.must(dev.Start())
	n.Cleanup(func() { // Ctrl-C
		if err := dev.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
			n.must(err)
		}
		n.must(dev.Wait())
	})
	var said bytes.Buffer
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == "Serving until Ctrl-C." {
			break
		}
	}
	up := isUp.FindStringSubmatch(said.String())
	if up == nil {
		n.Fatalf("dev did not start: %s", said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
	n.webhook, n.worker, n.service = up[1], up[2], up[3]
}

// incident is what wakes somebody, and the way back to normal.
type incident struct {
	name, queue string
	// provoke brings it about, with so many events.
	events  int
	provoke func(*night)
	// reason is that of the dead letters, and understood reports whether one of them says what is wrong.
	reason     string
	understood func(deadletters.Kept) bool
	// mend removes the cause, which the dead letter has named.
	mend func(*night, deadletters.Kept)
	why  string
}

// incidents are those of the night, on a catalog's queues. Each has a cause of its own and the same way back.
func incidents(c *catalog.Catalog) []incident {
	orders, _ := c.HandledBy("points.credit")
	updates, _ := c.EmitsTo("subscriptions.record")
	return []incident{
		{
			name: "unknown product", queue: orders.ID, reason: "unknown_product", why: "product added", events: 3,
			provoke: func(n *night) {
				n.ask(nil, "send", "paynow", "--sample", "order_completed_unknown_product_no_uid", "--repeat", "3", "--webhook", n.webhook)
			},
			understood: func(l deadletters.Kept) bool { return l.Detail != "" }, // the product's id
			mend: func(n *night, l deadletters.Kept) {
				n.ask(nil, "products", "set", l.Detail, "--points", "500", "--why", "sold since today")
			},
		},
		{
			name: "failing service", queue: updates.ID, reason: "callee_failed_503", why: "the service is back", events: 1,
			provoke: func(n *night) {
				n.tell(standin.Fail, 1000)
				n.ask(nil, "send", "paynow", "--sample", "subscription_renewed", "--webhook", n.webhook)
			},
			understood: func(l deadletters.Kept) bool { return strings.HasPrefix(l.Reason, "callee_") }, // the service's answer
			mend:       func(n *night, _ deadletters.Kept) { n.tell(standin.Normal, 1) },
		},
	}
}

// handle provokes an incident, waits for its alert, and follows the runbook on dead letters. It returns the seconds
// from the alert to the end of each step.
func (n *night) handle(i incident) string {
	i.provoke(n)
	n.until("an alert", func() bool { return n.alert(i.queue) })
	alert := time.Now()
	since := func() float64 { return time.Since(alert).Seconds() }
	n.printf("   ALERT on %s\n", i.queue)

	var deadLetters console.List[deadletter.Item]
	n.repeat(&deadLetters, func() bool { return len(deadLetters.Items) == i.events }, "dlq", "ls", i.queue, "--reason", i.reason)
	found := since()

	var deadLetter deadletters.Kept
	n.ask(&deadLetter, "dlq", "show", deadLetters.Items[0].ID)
	var event events.Event
	n.ask(&event, "events", "show", deadLetter.EventID, "--queue", i.queue)
	if event.Status != dedupe.DeadLettered || len(event.DeadLetters) == 0 || !i.understood(deadLetter) {
		n.Fatalf("neither the dead letter nor the event says what is wrong: %s %s %s", event.Status, deadLetter.Reason, deadLetter.Detail)
	}
	understood := since()

	i.mend(n, deadLetter)
	mended := since()

	var tried dryrun.Trial
	n.ask(&tried, "events", "try", deadLetter.EventID, "--queue", i.queue)
	var op deadletter.Operation
	n.ask(&op, "dlq", "replay", i.queue, "--reason", i.reason, "--why", i.why, "--yes")
	for _, l := range deadLetters.Items {
		n.repeat(&event, func() bool { return event.Status == dedupe.Completed }, "events", "show", l.EventID, "--queue", i.queue)
	}
	processed := since()
	n.until("the end of the alert", func() bool { return !n.alert(i.queue) })
	return fmt.Sprintf("%-16s  %6.1f  %10.1f  %6.1f  %9.1f", i.name, found, understood, mended, processed)
}

func (n *night) alert(queue string) bool {
	var all queues.Queues
	n.must(n.quietly(&all, "queues", "ls"))
	return slices.ContainsFunc(all.Items, func(q queues.Queue) bool { return q.ID == queue && q.DeadLetters.Alert })
}

// repeat runs a command until its answer is as it should be, and prints it once.
func (n *night) repeat(answer any, so func() bool, arguments ...string) {
	n.show(arguments)
	n.until(strings.Join(arguments, " "), func() bool { return n.quietly(answer, arguments...) == nil && so() })
}

// ask prints a command, runs it, and reads its JSON into answer, nil for none.
func (n *night) ask(answer any, arguments ...string) {
	n.show(arguments)
	n.must(n.quietly(answer, arguments...))
}

func (n *night) show(arguments []string) {
	words := slices.Clone(arguments)
	for i, word := range words {
		if strings.Contains(word, " ") {
			words[i] = strconv.Quote(word)
		}
	}
	n.printf("$ bin/billhook %s\n", strings.Join(words, " "))
}

func (n *night) quietly(answer any, arguments ...string) error {
	command := exec.CommandContext(n.ctx, n.binary, append(arguments, "--json")...)
	command.Env = []string{"HOME=" + n.home, "OPS_OPERATOR=on-call", "BILLHOOK_SERVER=" + n.worker}
	var failed bytes.Buffer
	command.Stderr = &failed
	said, err := command.Output()
	if err == nil && answer != nil {
		err = json.Unmarshal(said, answer)
	}
	if err != nil {
		return fmt.Errorf("billhook %s: %w: %s%s", strings.Join(arguments, " "), err, said, failed.Bytes())
	}
	return nil
}

// tell has the service that dev stands in for behave otherwise.
func (n *night) tell(mode standin.Mode, times int) {
	n.printf("   (the service: %s)\n", mode)
	body := fmt.Sprintf(`{"mode":%q,"times":%d}`, mode, times)
	request, err := http.NewRequestWithContext(n.ctx, http.MethodPost, n.service+"/tell", strings.NewReader(body))
	n.must(err)
	response, err := http.DefaultClient.Do(request)
	n.must(err)
	if _ = response.Body.Close(); response.StatusCode >= http.StatusMultipleChoices {
		n.Fatalf("the service answers %d", response.StatusCode)
	}
}
