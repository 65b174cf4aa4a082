package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
)

// dlqCommands are the commands that deal with dead letters: each shows a preview, asks, and follows what it has begun.
func (p *program) dlqCommands() []*cobra.Command {
	letters, ops := &cobra.Command{Use: "dlq"}, &cobra.Command{Use: "operations"}
	for _, kind := range deadletter.Kinds {
		letters.AddCommand(p.dlqAct(kind))
	}
	ops.AddCommand(p.approve(), p.runOperation())
	return []*cobra.Command{letters, ops}
}

func (p *program) dlqAct(kind deadletter.Kind) *cobra.Command {
	begin, _ := p.known.Find("dlq " + string(kind))
	preview, _ := p.known.Find("dlq preview")
	a := acting{preview: preview, do: string(kind) + " them", patience: patience{none: true}}
	var rate int64
	var force bool
	command := &cobra.Command{
		Use: string(kind) + " <queue> [<id>...]", Short: begin.Summary, Args: cobra.RangeArgs(1, 1+deadletter.MaxChosen),
		RunE: func(command *cobra.Command, args []string) error {
			in, err := preview.Input(func(f console.Field) (string, bool) {
				switch f.Name {
				case "queue":
					return args[0], true
				case "items":
					return strings.Join(args[1:], ","), true
				}
				return command.Flag(flagOf(f)).Value.String(), true
			})
			if err != nil {
				return usageError(err.Error())
			}
			return p.act(command, p.ask(), a, in, func(would dryrun.Preview) (string, any) {
				return begin.Pattern, deadletter.Begin{
					Filter: would.Filter, Expect: would.Total, Rate: rate, Force: force, Change: console.Change{Why: a.why},
				}
			})
		},
	}
	for _, f := range preview.Fields {
		if f.Name != "queue" && f.Name != "items" {
			command.Flags().Var(&flagValue{f, ""}, flagOf(f), f.Help)
		}
	}
	a.required(command)
	if kind == deadletter.Replay {
		a.flags(command)
		command.Flags().Int64Var(&rate, "rate", deadletter.Rate, "how many a second, at most")
		command.Flags().BoolVar(&force, "force", false, "also those that were replayed too often")
	}
	return command
}

// approve shows the second person what the first has seen, made anew, asks, approves and follows.
func (p *program) approve() *cobra.Command {
	approve, _ := p.known.Find("operations approve")
	preview, _ := p.known.Find("operations preview")
	a := acting{preview: preview, do: "approve it"}
	command := &cobra.Command{
		Use: "approve <operation>", Short: approve.Summary, Long: approve.Help, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			worker, id := p.ask(), args[0]
			op, err := p.printOperation(command.Context(), worker, id)
			if err != nil {
				return err
			}
			a.none = a.none || op.Kind != deadletter.Replay
			in := console.Input{Path: map[string]string{"id": id}}
			return p.act(command, worker, a, in, func(would dryrun.Preview) (string, any) {
				return approve.URL(in), deadletter.Approve{Expect: would.Total, Change: console.Change{Why: a.why}}
			})
		},
	}
	a.flags(command)
	return a.required(command)
}

func (p *program) runOperation() *cobra.Command {
	run, _ := p.known.Find("operations run")
	a := acting{}
	command := &cobra.Command{
		Use: "run <operation>", Short: "Go on with an operation, and wait for what becomes of it", Long: run.Summary + ".", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			var op deadletter.Operation
			ctx, worker := command.Context(), p.ask()
			if err := worker.get(ctx, operationPath(args[0], ""), &op); err != nil {
				return err
			}
			a.none = a.none || op.Kind != deadletter.Replay
			seen, err := pages[deadletter.Item](ctx, worker, operationPath(op.ID, "/items"), url.Values{})
			if err != nil {
				return err
			}
			return p.follow(ctx, worker, a, op, seen)
		},
	}
	a.flags(command)
	return command
}

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

// acting is a command that deals with dead letters.
type acting struct {
	reason
	patience
	// preview is the operation that shows what would be touched, and do what a person confirms.
	preview console.Operation
	do      string
}

// act shows what would be touched, asks, begins what send says of it, and follows that.
func (p *program) act(command *cobra.Command, ask client, a acting, in console.Input, send func(dryrun.Preview) (string, any)) error {
	ctx, would := command.Context(), dryrun.Preview{}
	if err := ask.get(ctx, a.preview.URL(in), &would); err != nil {
		return err
	}
	p.fields(a.preview.Columns, &would)
	if a.dryRun || would.Total == 0 {
		return p.printJSON(would)
	}
	var seen []deadletter.Item
	if a.waits() && len(would.Items) < would.Total {
		open, err := openOf(ctx, ask, would.Filter)
		if err != nil {
			return err
		}
		seen = open
	} else if a.waits() {
		for _, one := range would.Items {
			seen = append(seen, one.Item)
		}
	}
	if err := p.confirm(command.InOrStdin(), a.yes, strconv.Itoa(would.Total), a.do); err != nil {
		return err
	}
	op, err := begin(ctx, ask, would, seen, send)
	if err != nil {
		return err
	}
	return p.follow(ctx, ask, a, op, seen)
}

// begins is how often a command tries to begin an operation while others deal with the same dead letters.
const begins = 10

// begin begins an operation on what the person has seen. Where others have dealt with some of that meanwhile it
// begins one on the rest: the operation has no id where nothing is left. What nobody has seen stays as it is.
func begin(ctx context.Context, ask client, would dryrun.Preview, seen []deadletter.Item, send func(dryrun.Preview) (string, any)) (op deadletter.Operation, err error) {
	for range begins {
		path, question := send(would)
		err = ask.post(ctx, path, question, &op)
		problem := (*problemError)(nil)
		if err == nil || len(seen) == 0 || !errors.As(err, &problem) || problem.Status != http.StatusConflict {
			return op, err
		}
		open, failed := openOf(ctx, ask, would.Filter)
		if failed != nil {
			return op, failed
		}
		isNew := func(i deadletter.Item) bool {
			return !slices.ContainsFunc(seen, func(s deadletter.Item) bool { return s.ID == i.ID })
		}
		if slices.ContainsFunc(open, isNew) {
			return op, err
		}
		if would.Total = len(open); len(open) == 0 {
			return deadletter.Operation{}, nil
		}
	}
	return op, err
}

func openOf(ctx context.Context, ask client, f deadletter.Filter) ([]deadletter.Item, error) {
	return pages[deadletter.Item](ctx, ask, "/v1/ops/dead-letters", query(f))
}

func query(f deadletter.Filter) url.Values {
	values := url.Values{}
	for name, value := range map[string]string{
		"queue": f.Queue, "items": strings.Join(f.Items, ","), "reason": f.Reason, "type": f.EventType, "event_id": f.EventID, "key": f.OrderingKey,
	} {
		set(values, name, value)
	}
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			values.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	return values
}

// How often a command looks at an operation, and how many dead letters of one it shows.
const (
	lookEvery = time.Second
	shown     = 20
)

func operationPath(id, rest string) string {
	return "/v1/ops/operations/" + url.PathEscape(id) + rest
}

// printOperation prints an operation as it stands.
func (p *program) printOperation(ctx context.Context, ask client, id string) (op deadletter.Operation, err error) {
	if err = ask.get(ctx, operationPath(id, ""), &op); err == nil {
		show, _ := p.known.Find("operations show")
		p.fields(show.Columns, &op)
	}
	return op, err
}

type report struct {
	deadletter.Operation
	// Items are those that the person has seen, at most shown: first those that need a person.
	Items []deadletter.Item `json:"items"`
}

// follow runs an operation to its end and prints its progress. Of a replay it waits for what becomes of each that
// the person has seen, and fails unless all are processed, by whomever. Without an id the operation was not begun:
// others had dealt with everything.
func (p *program) follow(ctx context.Context, ask client, a acting, op deadletter.Operation, seen []deadletter.Item) (err error) {
	if op.Progress == deadletter.Waiting {
		p.printf("Operation %s waits for the approval of somebody else:\n  bin/billhook operations approve %s --why \"...\"\n  bin/billhook operations reject %s --why \"...\"\n", op.ID, op.ID, op.ID)
		if err := p.printJSON(op); err != nil || op.Kind != deadletter.Replay || !a.waits() {
			return err
		}
		return errors.New("nothing is replayed yet: it waits for approval")
	}
	whole := report{Operation: op}
	if op.ID == "" {
		p.printf("Others have dealt with all of them meanwhile.\n")
	} else if whole.Operation, err = ask.run(ctx, op, func(op deadletter.Operation) { p.printf("operation %s: %d of %d\n", op.ID, op.Done, op.Total) }); err == nil && a.none {
		whole.Operation, err = p.printOperation(ctx, ask, op.ID)
	}
	if err == nil && a.waits() {
		whole, err = p.await(ctx, ask, whole.Operation, seen, a.wait)
	}
	switch {
	case err != nil && ctx.Err() != nil && op.ID != "":
		p.printf("The operation goes on by itself. Look on: bin/billhook operations run %s\n", op.ID)
		return err
	case err != nil:
		return err
	case !a.waits():
		return p.printJSON(whole.Operation)
	}
	return p.report(whole, max(op.Total, int64(len(seen))))
}

// run runs an operation until it is over, and tells how far it is.
func (w client) run(ctx context.Context, op deadletter.Operation, tell func(deadletter.Operation)) (deadletter.Operation, error) {
	err := poll(ctx, lookEvery, http.StatusConflict, func() (bool, error) {
		err := w.post(ctx, operationPath(op.ID, "/run"), struct{}{}, &op)
		tell(op)
		return op.Progress.Over(), err
	})
	return op, err
}

// await looks at a replay, and at what the person has seen, until nothing of it waits, or for as long as was asked.
func (p *program) await(ctx context.Context, ask client, op deadletter.Operation, seen []deadletter.Item, atMost time.Duration) (report, error) {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	told, whole := "", report{Operation: op}
	look := func(ctx context.Context) (err error) {
		if op.ID != "" {
			if err := ask.get(ctx, operationPath(op.ID, ""), &whole.Operation); err != nil {
				return err
			}
			if now := whole.Outcomes; now != nil && now.Waiting > 0 && now.String() != told {
				told = now.String()
				p.printf("%s\n", told)
			}
		}
		whole.Items, err = standing(ctx, ask, seen)
		return err
	}
	err := poll(limited, lookEvery, http.StatusConflict, func() (bool, error) {
		err := look(limited)
		return !slices.ContainsFunc(whole.Items, func(i deadletter.Item) bool { return i.State == deadletter.Replayed }), err
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = look(ctx)
	}
	return whole, err
}

// standing is how dead letters stand now: first those that need a person.
func standing(ctx context.Context, ask client, of []deadletter.Item) (now []deadletter.Item, err error) {
	for some := range slices.Chunk(of, deadletter.MaxChosen) {
		ids := make([]string, len(some))
		for n, item := range some {
			ids[n] = item.ID
		}
		values := url.Values{"queue": {some[0].Queue}, "items": {strings.Join(ids, ",")}, "state": {"all"}}
		page, err := pages[deadletter.Item](ctx, ask, "/v1/ops/dead-letters", values)
		if err != nil {
			return nil, err
		}
		now = append(now, page...)
	}
	slices.SortStableFunc(now, func(a, b deadletter.Item) int {
		return slices.Index(deadletter.States, a.State) - slices.Index(deadletter.States, b.State)
	})
	return now, nil
}

// report says what became of each, and fails unless all that were asked for are processed.
func (p *program) report(whole report, asked int64) error {
	became, processed := map[string]int{}, int64(0)
	var rows [][]string
	for _, i := range whole.Items {
		became[i.Became()]++
		if i.State == deadletter.Processed {
			processed++
		}
		reason, by := "", ""
		if i.State == deadletter.Open {
			reason = strings.TrimSpace(i.Reason + " " + i.Detail)
		}
		if len(i.History) > 0 && i.Operation != whole.ID {
			by = i.History[0].Who
		}
		rows = append(rows, row(i.EventID, i.Became(), by, reason, i.ID))
	}
	if len(rows) > 0 {
		p.table([]string{"EVENT", "BECAME", "BY", "REASON", "ID"}, rows[:min(len(rows), shown)], nil, "REASON")
	}
	if len(rows) > shown {
		p.printf("%d of %d are shown.\n", shown, len(rows))
	}
	p.printf("%s\n", formatCounts(became))
	whole.Items = append([]deadletter.Item{}, whole.Items[:min(len(whole.Items), shown)]...)
	if err := p.printJSON(whole); err != nil || processed >= asked {
		return err
	}
	again := "bin/billhook dlq ls --state all"
	if whole.ID != "" {
		again = "bin/billhook operations show " + whole.ID
	}
	return fmt.Errorf("%d of %d are not processed: look again with %s", asked-processed, asked, again)
}

func formatCounts(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], strings.Compare(a, b)) })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", name, of[name])
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
