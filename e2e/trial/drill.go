package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/compose/devstack"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/standin"
)

// drill handles incidents by the runbook, only with bin/billhook. It fails unless all events are processed.
func drill(flags *flag.FlagSet) func(*run) {
	stack := flags.String("stack", "emulators", "what it runs on: emulators, or dev for the stand-ins")
	return func(r *run) {
		config := devstack.Config{Catalog: catalogtest.Shipped(), TaskEvery: 10 * time.Second, Drain: time.Second}
		config.Catalog.ShortenWaits(time.Second)
		require.Contains(r, []string{"emulators", "dev"}, *stack, "-stack")
		if *stack == "emulators" {
			sdk := filetest.Must(emulator.Find())(r)
			config.Emulators = &sdk
		}
		n := &night{embedded: embed(r, config), binary: r.program()}
		r.printf("Billhook is up on %s.\n", *stack)
		row := r.table("Seconds from the alert", "found", "understood", "mended", "processed")
		for _, i := range incidents(config.Catalog) {
			r.printf("\n== %s\n", i.name)
			row(n.handle(i)...)
		}
		r.printf("\n")
	}
}

func (r *run) program() string {
	folder := r.TempDir()
	r.must(e2e.Build(r.ctx, folder, "", "billhook/cmd/billhook"))
	return filepath.Join(folder, "billhook")
}

type night struct {
	*embedded
	binary string
}

// incident is an alert on a queue, with functions that raise it and remove its cause.
type incident struct {
	name, queue string
	// provoke raises the alert, with this many events.
	events  int
	provoke func(*night)
	// reason is the reason of the dead letters.
	reason string
	// mend removes the cause, which a dead letter names.
	mend func(*night, deadletters.Kept)
	why  string
}

func incidents(c *catalog.Catalog) []incident {
	orders, _ := c.HandledBy("points.credit")
	updates, _ := c.EmitsTo("subscriptions.record")
	return []incident{
		{
			name: "unknown product", queue: orders.ID, reason: "unknown_product", why: "product added", events: 3,
			provoke: func(n *night) {
				const sample = "order_completed_unknown_product_no_uid"
				n.ask(nil, "send", "paynow", "--sample", sample, "--repeat", "3", "--webhook", n.webhookURL)
			},
			mend: func(n *night, l deadletters.Kept) {
				require.NotEmpty(n, l.Detail, "the product's id")
				n.ask(nil, "products", "set", l.Detail, "--points", "500", "--why", "sold since today")
			},
		},
		{
			name: "failing service", queue: updates.ID, reason: "callee_failed_503", why: "it is back", events: 1,
			provoke: func(n *night) {
				n.must(n.Service.Behave("", standin.Fail, 1000))
				n.ask(nil, "send", "paynow", "--sample", "subscription_renewed", "--webhook", n.webhookURL)
			},
			mend: func(n *night, _ deadletters.Kept) { n.must(n.Service.Behave("", standin.Normal, 1)) },
		},
	}
}

// handle provokes an incident, follows the runbook, and returns a row with the seconds from the alert.
func (n *night) handle(i incident) (row []any) {
	i.provoke(n)
	n.until(often, func() string { return unless(n.alert(i.queue), "an alert on %s", i.queue) })
	alert := time.Now()
	row = []any{i.name}
	done := func() { row = append(row, fmt.Sprintf("%.1f", time.Since(alert).Seconds())) }
	n.printf("   ALERT on %s\n", i.queue)

	var deadLetters console.List[deadletter.Item]
	all := func() bool { return len(deadLetters.Items) == i.events }
	n.repeat(&deadLetters, all, "dlq", "ls", i.queue, "--reason", i.reason)
	done()

	var deadLetter deadletters.Kept
	n.ask(&deadLetter, "dlq", "show", deadLetters.Items[0].ID)
	var event events.Event
	n.ask(&event, "events", "show", deadLetter.EventID, "--queue", i.queue)
	require.Equal(n, i.reason, deadLetter.Reason)
	require.Equal(n, dedupe.DeadLettered, event.Status)
	require.NotEmpty(n, event.DeadLetters)
	done()

	i.mend(n, deadLetter)
	done()

	n.ask(nil, "events", "try", deadLetter.EventID, "--queue", i.queue)
	n.ask(nil, "dlq", "replay", i.queue, "--reason", i.reason, "--why", i.why, "--yes")
	completed := func() bool { return event.Status == dedupe.Completed }
	for _, l := range deadLetters.Items {
		n.repeat(&event, completed, "events", "show", l.EventID, "--queue", i.queue)
	}
	done()
	n.until(often, func() string { return unless(!n.alert(i.queue), "the end of the alert on %s", i.queue) })
	return row
}

func (n *night) alert(queue string) bool {
	var all queues.Queues
	n.must(n.quietly(&all, "queues", "ls"))
	return slices.ContainsFunc(all.Items, func(q queues.Queue) bool {
		return q.ID == queue && q.DeadLetters.Alert
	})
}

// repeat runs a command until its answer meets a condition. It prints the command once.
func (n *night) repeat(answer any, met func() bool, arguments ...string) {
	n.show(arguments)
	n.until(often, func() string {
		return unless(n.quietly(answer, arguments...) == nil && met(), "%s", strings.Join(arguments, " "))
	})
}

// ask prints a command, runs it, and reads its JSON into answer, if that is not nil.
func (n *night) ask(answer any, arguments ...string) {
	n.show(arguments)
	n.must(n.quietly(answer, arguments...))
}

func (n *night) show(arguments []string) {
	n.printf("$ bin/billhook %s\n", strings.Join(filetest.Map(arguments, screen.Quoted), " "))
}

func (n *night) quietly(answer any, arguments ...string) error {
	command := exec.CommandContext(n.ctx, n.binary, append(arguments, "--json")...)
	command.Env = []string{
		"HOME=" + filepath.Dir(n.binary), "OPS_OPERATOR=on-call", "BILLHOOK_SERVER=" + n.WorkerURL,
		"WEBHOOK_SECRET_PAYNOW=" + e2e.Secret,
	}
	var failed bytes.Buffer
	command.Stderr = &failed
	said, err := command.Output()
	if err != nil {
		return fmt.Errorf("billhook %s: %w: %s%s", strings.Join(arguments, " "), err, said, failed.Bytes())
	}
	if answer != nil {
		err = json.Unmarshal(said, answer)
	}
	return err
}
