package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
)

// patience is how long a command waits for what becomes of a replay.
type patience struct {
	wait time.Duration
	none bool
}

func (w *patience) flags(command *cobra.Command) {
	command.Flags().DurationVar(&w.wait, "wait", 5*time.Minute, "how long to wait, at most, until each replay has ended")
	command.Flags().BoolVar(&w.none, "no-wait", false, "for scripts: end when all is published, and do not wait for what becomes of it")
}

// waits reports whether the command is to say what became of each.
func (w *patience) waits() bool { return !w.none && w.wait > 0 }

// How often a command looks at an operation, and how many dead letters of one it shows.
const (
	lookEvery = time.Second
	shown     = 20
)

func operationPath(id, rest string) string {
	return "/v1/ops/operations/" + url.PathEscape(id) + rest
}

type report struct {
	ops.Operation
	// Items are dead again, wait, or are processed, in that order; at most shown.
	Items []deadletter.Item `json:"items"`
	// Others are those that the person has seen, and that other operations have dealt with.
	Others []deadletter.Item `json:"others,omitempty"`
}

// follow runs an operation to its end and prints its progress. Of a replay it waits for what becomes of each that
// the person has seen, and fails unless all are processed, by whomever. Without an id the operation was not begun:
// others had dealt with everything.
func (p *program) follow(ctx context.Context, ask client, op deadletter.Operation, w patience, seen []deadletter.Item) error {
	if op.Progress == deadletter.Waiting {
		p.printf("Operation %s waits for the approval of somebody else:\n  bin/billhook dlq approve %s --why \"...\"\n  bin/billhook dlq reject %s --why \"...\"\n", op.ID, op.ID, op.ID)
		if err := p.printJSON(op); err != nil || op.Kind != deadletter.Replay || !w.waits() {
			return err
		}
		return errors.New("nothing is replayed yet: it waits for approval")
	}
	found, err := ops.Operation{Operation: op, Outcomes: &deadletter.Outcomes{}}, error(nil)
	if op.ID == "" {
		p.printf("Others have dealt with all of them meanwhile.\n")
	} else {
		found, err = p.finish(ctx, ask, op)
	}
	if err == nil && op.ID != "" && found.Kind == deadletter.Replay && w.waits() {
		found, err = p.await(ctx, ask, found, w.wait)
	}
	if err != nil {
		if ctx.Err() != nil {
			p.printf("The operation goes on by itself, or with: bin/billhook dlq continue %s\n", op.ID)
			p.printf("See how far it is: bin/billhook dlq operations show %s\n", op.ID)
		}
		return err
	}
	if op.ID != "" {
		if found.Progress != deadletter.Finished {
			p.printf("%s by %s: %s\n", found.Progress, found.EndedBy, found.EndedWhy)
		}
		p.printf("%s: %d done, %d passed by\n", found.Kind, found.Done, found.Skipped)
	}
	if found.Outcomes == nil || !w.waits() {
		return p.printJSON(found)
	}
	var others []deadletter.Item
	if int64(len(seen)) > found.Outcomes.Processed+found.Outcomes.DeadAgain+found.Outcomes.Waiting {
		if others, err = awaitOthers(ctx, ask, op.ID, seen, w.wait); err != nil {
			return err
		}
	}
	if err := p.report(ctx, ask, found, others); err != nil {
		return err
	}
	return unprocessed(found, others, len(seen))
}

// unprocessed is the error of a replay unless all is processed that the person has seen, or that it was asked for.
func unprocessed(op ops.Operation, others []deadletter.Item, seen int) error {
	asked, processed := max(op.Total, int64(seen)), op.Outcomes.Processed
	for _, item := range others {
		if item.State == deadletter.Processed {
			processed++
		}
	}
	switch {
	case processed >= asked:
		return nil
	case op.ID == "":
		return fmt.Errorf("%d of %d are not processed: look again with bin/billhook dlq ls --state all", asked-processed, asked)
	default:
		return fmt.Errorf("%d of %d are not processed: look again with bin/billhook dlq operations show %s", asked-processed, asked, op.ID)
	}
}

func (w client) run(ctx context.Context, op deadletter.Operation) (deadletter.Operation, error) {
	err := poll(ctx, lookEvery, http.StatusConflict, func() (bool, error) {
		err := w.post(ctx, operationPath(op.ID, "/run"), struct{}{}, &op)
		return op.Progress.Over(), err
	})
	return op, err
}

// finish runs an operation until it is over. Beside that it looks at the operation and prints how far it is.
func (p *program) finish(ctx context.Context, ask client, op deadletter.Operation) (ops.Operation, error) {
	p.printf("operation %s: %d of %d\n", op.ID, op.Done, op.Total)
	ran := make(chan error, 1)
	go func() {
		_, err := ask.run(ctx, op)
		ran <- err
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var found ops.Operation
	for done := op.Done; ; {
		var err error
		over := false
		select {
		case err = <-ran:
			over = true
		case <-tick.C:
		}
		if err != nil {
			return found, err
		}
		err = ask.get(ctx, operationPath(op.ID, ""), &found)
		if err == nil && found.Done != done {
			done = found.Done
			p.printf("operation %s: %d of %d\n", op.ID, done, found.Total)
		}
		if over {
			return found, err
		}
	}
}

// await looks at a replay until nothing of it waits, or for as long as was asked.
func (p *program) await(ctx context.Context, ask client, op ops.Operation, atMost time.Duration) (ops.Operation, error) {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	var told deadletter.Outcomes
	err := poll(limited, lookEvery, http.StatusConflict, func() (bool, error) {
		var found ops.Operation
		if err := ask.get(limited, operationPath(op.ID, ""), &found); err != nil {
			return false, err
		}
		if op = found; op.Outcomes == nil {
			return true, nil
		}
		if now := *op.Outcomes; now != told && now.Waiting > 0 {
			told = now
			p.printf("%s\n", became(now))
		}
		return op.Outcomes.Waiting == 0, nil
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return op, nil // what it was last
	}
	return op, err
}

func became(o deadletter.Outcomes) string {
	parts := []string{fmt.Sprintf("%d processed", o.Processed)}
	for _, more := range []struct {
		of   int64
		text string
	}{
		{o.DeadAgain, "dead again"}, {o.Waiting, "still waiting"}, {o.Later, "dealt with since in another way"}, {o.PassedBy, "passed by"},
	} {
		if more.of > 0 {
			parts = append(parts, fmt.Sprint(more.of, " ", more.text))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *program) report(ctx context.Context, ask client, op ops.Operation, others []deadletter.Item) error {
	whole := report{Operation: op, Items: []deadletter.Item{}, Others: others}
	var rows [][]string
	for _, state := range []deadletter.State{deadletter.Open, deadletter.Replayed, deadletter.Processed} {
		left := shown - len(whole.Items)
		if left == 0 || op.ID == "" {
			break
		}
		some, err := pages[deadletter.Item](ctx, ask, operationPath(op.ID, "/items"), url.Values{"state": {string(state)}}, left)
		if err != nil {
			return err
		}
		for _, i := range some.Items {
			fate, reason := string(cmp.Or(i.Outcome, "processed")), ""
			switch state {
			case deadletter.Open:
				fate, reason = "dead again", i.Reason+" "+i.Detail
			case deadletter.Replayed:
				fate = "still waiting"
			default:
			}
			rows = append(rows, row(i.EventID, fate, strings.TrimSpace(reason), i.ID))
		}
		whole.Items = append(whole.Items, some.Items...)
	}
	most := int64(len(rows))
	for _, i := range others[:min(len(others), shown)] {
		rows = append(rows, row(i.EventID, byOthers(i), "", i.ID))
	}
	if len(rows) > 0 {
		p.table([]string{"EVENT", "BECAME", "REASON", "ID"}, rows)
	}
	if all := op.Done + int64(len(others)); int64(len(rows)) < all && (most < op.Done || len(others) > shown) {
		p.printf("%d of %d are shown.\n", len(rows), all)
	}
	p.printf("%s\n", became(*op.Outcomes))
	if len(others) > 0 {
		p.printf("%d of those that you have seen are in other hands\n", len(others))
	}
	if op.Outcomes.Waiting > 0 {
		p.printf("Where one waits: bin/billhook events show <event>\n")
	}
	return p.printJSON(whole)
}

func (p *program) dlqOperations(c *choice) *cobra.Command {
	command, path := question{
		use: "operations", short: "List what people do with dead letters, the newest last: who did what, why, and how far it is", path: "/v1/ops/operations",
	}.command()
	command.RunE = func(command *cobra.Command, args []string) error {
		all, err := pages[deadletter.Operation](command.Context(), c.ask(), path(command, args), nil, 0)
		if err != nil {
			return err
		}
		slices.SortFunc(all.Items, func(a, b deadletter.Operation) int { return a.CreatedAt.Compare(b.CreatedAt) })
		columns[deadletter.Operation]{
			names: []string{"ID", "KIND", "QUEUE", "WHO", "WHY", "BEGUN", "DONE", "OF", "PROGRESS", "SECOND"}, less: []string{"SECOND", "QUEUE", "KIND"},
			row: func(op deadletter.Operation) []string {
				return row(op.ID, op.Kind, op.Filter.Queue, op.Who, op.Why, when(op.CreatedAt), op.Done, op.Total, op.Progress, cmp.Or(op.ApprovedBy, op.EndedBy))
			},
		}.print(p, all.Items)
		return p.printJSON(all)
	}
	command.AddCommand(p.dlqOperation(c))
	return command
}

func (p *program) dlqOperation(c *choice) *cobra.Command {
	return &cobra.Command{
		Use: "show <operation>", Short: "Show one operation on dead letters, and what became of what it has replayed", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ask := c.ask()
			var op ops.Operation
			if err := ask.get(command.Context(), operationPath(args[0], ""), &op); err != nil {
				return err
			}
			p.record([]string{"operation", "kind", "queue", "who", "why", "begun", "progress", "done", "approved by", "approved why", "ended", "ended by", "ended why"}, row(
				op.ID, op.Kind, op.Filter.Queue, op.Who, op.Why, when(op.CreatedAt), op.Progress, fmt.Sprint(op.Done, " of ", op.Total),
				op.ApprovedBy, op.ApprovedWhy, when(op.FinishedAt), op.EndedBy, op.EndedWhy,
			))
			if op.Outcomes == nil {
				return p.printJSON(op)
			}
			return p.report(command.Context(), ask, op, nil)
		},
	}
}

// dlqApprove shows the second person what the first has seen, made anew, asks, approves and follows.
func (p *program) dlqApprove(c *choice) *cobra.Command {
	var why reason
	var w patience
	command := &cobra.Command{
		Use: "approve <operation>", Short: "Look at an operation that another person has begun, approve it, and run it", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, ask := command.Context(), c.ask()
			var op deadletter.Operation
			if err := ask.get(ctx, operationPath(args[0], ""), &op); err != nil {
				return err
			}
			var preview ops.Preview
			if err := ask.get(ctx, operationPath(args[0], "/preview"), &preview); err != nil {
				return err
			}
			p.printf("%s of %d, begun by %s on %s: %s\n", op.Kind, op.Total, op.Who, when(op.CreatedAt), op.Why)
			p.printPreview(op.Kind, op.Filter.Queue, preview)
			if why.dryRun {
				return p.printJSON(preview)
			}
			seen, err := seenOf(ctx, ask, op.Matching(), preview, w)
			if err != nil {
				return err
			}
			if err := p.confirm(command.InOrStdin(), why.yes, strconv.Itoa(preview.Total), "approve it"); err != nil {
				return err
			}
			if err := ask.post(ctx, operationPath(args[0], "/approve"), ops.Approval{Why: why.why, Expect: preview.Total}, &op); err != nil {
				return err
			}
			return p.follow(ctx, ask, op, w, seen)
		},
	}
	w.flags(command)
	return why.required(command)
}

func (p *program) dlqContinue(c *choice) *cobra.Command {
	var w patience
	command := &cobra.Command{
		Use: "continue <operation>", Short: "Go on with an operation, or look on while it goes on", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			var op deadletter.Operation
			ask := c.ask()
			if err := ask.get(command.Context(), operationPath(args[0], ""), &op); err != nil {
				return err
			}
			return p.follow(command.Context(), ask, op, w, nil)
		},
	}
	w.flags(command)
	return command
}

func (p *program) dlqEnd(c *choice, use, short string) *cobra.Command {
	return sends(p, c.ask, question{use: use + " <operation>", short: short, path: "/v1/ops/operations/{}/" + use},
		func(why string) any { return ops.Reason{Why: why} }, func(op deadletter.Operation) {
			p.printf("operation %s is %s, by %s: %d of %d were done, and no other is touched\n", op.ID, op.Progress, op.EndedBy, op.Done, op.Total)
		})
}
