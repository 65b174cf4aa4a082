package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
)

type choice struct {
	ask                                   func() client
	reason, eventType, eventID, key, item string
	since, until                          string
}

func (c *choice) flags(command *cobra.Command) {
	c.narrow(command)
	command.Flags().StringVar(&c.item, "item", "", "only this one, by its id")
}

func (c *choice) narrow(command *cobra.Command) {
	command.Flags().StringVar(&c.reason, "reason", "", "only of this reason")
	command.Flags().StringVar(&c.eventType, "type", "", "only of this event type")
	command.Flags().StringVar(&c.eventID, "event", "", "only of this event id")
	command.Flags().StringVar(&c.key, "key", "", "only of this ordering key")
	command.Flags().StringVar(&c.since, "since", "", "only kept since "+moments)
	command.Flags().StringVar(&c.until, "until", "", "only kept before "+moments)
}

func (c *choice) filter(queue string, now time.Time) (deadletter.Filter, error) {
	f := deadletter.Filter{Queue: queue, Reason: c.reason, EventType: c.eventType, EventID: c.eventID, OrderingKey: c.key, Item: c.item}
	for text, at := range map[*string]*time.Time{&c.since: &f.Since, &c.until: &f.Until} {
		if *text == "" {
			continue
		}
		var err error
		if *at, err = parseMoment(*text, now); err != nil {
			return f, usageError("--since and --until take " + moments)
		}
	}
	return f, nil
}

func query(f deadletter.Filter) url.Values {
	values := parameters(map[string]string{
		"queue": f.Queue, "items": strings.Join(f.Items, ","), "reason": f.Reason, "type": f.EventType, "event_id": f.EventID,
		"key": f.OrderingKey, "item": f.Item,
	})
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			values.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	return values
}

func (p *program) dlqCommand() *cobra.Command {
	c := &choice{}
	command := &cobra.Command{Use: "dlq", Short: "Look at dead letters, replay them, discard them or complete them by hand"}
	c.ask = p.worker(command)
	command.AddCommand(p.dlqList(c), p.dlqReasons(c), p.dlqShow(c), p.dlqAct(c, deadletter.Replay), p.dlqAct(c, deadletter.Discard), p.dlqAct(c, deadletter.Complete), p.dlqOperations(c), p.dlqApprove(c),
		p.dlqEnd(c, "reject", "Refuse an operation that another person has begun, and that waits for approval"),
		p.dlqEnd(c, "cancel", "Stop an operation; what it has done stays done"),
		p.dlqContinue(c))
	return command
}

func (p *program) dlqList(c *choice) *cobra.Command {
	var state string
	var limit int
	command := &cobra.Command{
		Use: "ls [queue]", Short: "List the dead letters of a queue, or of all, the newest first", Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			f, err := c.filter(append(args, "")[0], time.Now())
			if err != nil {
				return err
			}
			values := query(f)
			values.Set("state", state)
			all, err := pages[deadletter.Item](command.Context(), c.ask(), "/v1/ops/dead-letters", values, limit)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, i := range all.Items {
				rows = append(rows, row(i.ID, i.Queue, i.Reason, i.EventType, i.EventID, i.OrderingKey, i.Attempts, i.ReplayCount, when(i.Kept), i.State, i.Detail))
			}
			p.table([]string{"ID", "QUEUE", "REASON", "TYPE", "EVENT", "KEY", "ATTEMPTS", "REPLAYS", "KEPT", "STATE", "DETAIL"}, rows, "QUEUE", "KEY", "REPLAYS", "STATE", "ATTEMPTS", "TYPE", "KEPT", "EVENT", "DETAIL")
			reasons := map[string]int{}
			for _, i := range all.Items {
				reasons[i.Reason]++
			}
			p.printf("%d shown: %s\n", len(all.Items), formatCounts(reasons))
			if all.Next != "" {
				p.printf("There are more: raise --limit.\n")
			}
			return p.printJSON(all)
		},
	}
	c.flags(command)
	command.Flags().StringVar(&state, "state", string(deadletter.Open), "open, replayed, processed, corrected, discarded, completed or all")
	oneOf(command, "state", append(slices.Clone(deadletter.States), "all")...)
	command.Flags().IntVar(&limit, "limit", 100, "how many to show")
	return command
}

func (p *program) dlqReasons(c *choice) *cobra.Command {
	var only choice
	command := &cobra.Command{
		Use: "reasons [queue]", Short: "Count the open dead letters of a queue, or of all, by their reasons", Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			f, err := only.filter(append(args, "")[0], time.Now())
			if err != nil {
				return err
			}
			var all ops.List[deadletter.Reason]
			if err := c.ask().get(command.Context(), "/v1/ops/dead-letters/reasons?"+query(f).Encode(), &all); err != nil {
				return err
			}
			var rows [][]string
			for _, r := range all.Items {
				reason, counted := r.Reason, strconv.FormatInt(r.Count, 10)
				if r.Others {
					reason = "(others)"
				}
				if r.More {
					counted = "over " + counted
				}
				rows = append(rows, row(r.Queue, reason, counted, when(r.Newest)))
			}
			p.table([]string{"QUEUE", "REASON", "COUNT", "NEWEST"}, rows, "NEWEST")
			return p.printJSON(all)
		},
	}
	only.narrow(command)
	return command
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

func (p *program) dlqShow(c *choice) *cobra.Command {
	var payload bool
	var why string
	command := &cobra.Command{
		Use: "show <id>", Short: "Show one dead letter with its attributes, and its minimized payload to who says why", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			var letter ops.Letter
			path := "/v1/ops/dead-letters/" + url.PathEscape(args[0])
			switch {
			case payload != (strings.TrimSpace(why) != ""):
				return usageError("--payload and --why: say both, or neither")
			case payload:
				err = c.ask().post(command.Context(), path+"/payload", ops.Reason{Why: why}, &letter)
			default:
				err = c.ask().get(command.Context(), path, &letter)
			}
			if err != nil {
				return err
			}
			p.printLetter(letter, payload)
			return p.printJSON(letter)
		},
	}
	command.Flags().BoolVar(&payload, "payload", false, "also its minimized payload; the audit says who has looked, and why")
	command.Flags().StringVar(&why, "why", "", "the reason, for the audit; required with --payload")
	return command
}

func (p *program) printLetter(letter ops.Letter, payload bool) {
	p.printf("%s  %s\n  queue %s, event %s %s, key %s\n  %d %s %s\n  %d attempts, %d replays, died %s, kept until %s\n",
		letter.ID, letter.State, letter.Queue, letter.EventType, letter.EventID, letter.OrderingKey,
		letter.Status, letter.Reason, letter.Detail, letter.Attempts, letter.ReplayCount, when(letter.Died()), when(letter.Expires))
	if letter.Later != nil {
		p.printf("  later messages of its key: %s\n", letter.Later)
	}
	switch letter.State {
	case deadletter.Corrected:
		p.printf("  corrected by message %s, %s\n", letter.CorrectedBy, when(letter.Closed))
	case deadletter.Processed:
		p.printf("  its replay has ended as %s, %s\n", letter.Outcome, when(letter.Closed))
	default:
	}
	for _, act := range letter.History {
		p.printf("  %s  %s by %s: %s (operation %s)\n", when(act.At), act.Kind, act.Who, cmp.Or(act.Why, "-"), act.Operation)
	}
	for _, name := range slices.Sorted(maps.Keys(letter.Attributes)) {
		p.printf("  %-28s %s\n", name, letter.Attributes[name])
	}
	switch {
	case letter.Omitted > 0:
		p.printf("  the payload of %d bytes is on the hold subscription only\n", letter.Omitted)
	case payload:
		p.fields(console.Columns[ops.TriedMessage](), ops.TriedMessage{Data: letter.Data, Base64: letter.Base64})
	default:
		p.printf("  the payload has %d bytes: --payload --why shows it\n", letter.Size)
	}
}

var shorts = map[deadletter.Kind]string{
	deadletter.Replay:   "Publish a queue's dead letters on it again, or some by their ids, each under its key, in the order they had",
	deadletter.Discard:  "Close a queue's dead letters for good, or some by their ids; they stay on record",
	deadletter.Complete: "Close a queue's dead letters, or some by their ids, as completed by hand: done elsewhere, as --why says; they stay on record",
}

func (p *program) dlqAct(c *choice, kind deadletter.Kind) *cobra.Command {
	var why reason
	var rate int64
	var force bool
	w := patience{none: true}
	command := &cobra.Command{
		Use: string(kind) + " <queue> [<id>...]", Short: shorts[kind], Args: cobra.RangeArgs(1, 1+deadletter.MaxChosen),
		RunE: func(command *cobra.Command, args []string) error {
			f, err := c.filter(args[0], time.Now())
			if err != nil {
				return err
			}
			f.Items = args[1:]
			ctx, ask := command.Context(), c.ask()
			var preview ops.Preview
			if err := ask.get(ctx, "/v1/ops/dead-letters/preview?"+query(f).Encode(), &preview); err != nil {
				return err
			}
			p.printPreview(kind, f.Queue, preview)
			if preview.Looping > 0 && kind == deadletter.Replay && !force {
				p.printf("  %d were replayed %d times and are passed by; --force replays them too\n", preview.Looping, deadletter.MaxReplays)
			}
			if why.dryRun || preview.Total == 0 {
				return p.printJSON(preview)
			}
			seen, err := seenOf(ctx, ask, f, preview, w)
			if err != nil {
				return err
			}
			if err := p.confirm(command.InOrStdin(), why.yes, strconv.Itoa(preview.Total), string(kind)+" them"); err != nil {
				return err
			}
			op, err := begin(ctx, ask, kind, ops.Request{Filter: f, Why: why.why, Expect: preview.Total, Rate: rate, Force: force}, seen)
			if err != nil {
				return err
			}
			return p.follow(ctx, ask, op, w, seen)
		},
	}
	c.flags(command)
	why.required(command)
	if kind == deadletter.Replay {
		w.flags(command)
		command.Flags().Int64Var(&rate, "rate", deadletter.Rate, "how many a second, at most")
		command.Flags().BoolVar(&force, "force", false, "also those that were replayed too often")
	}
	return command
}

func (p *program) printPreview(kind deadletter.Kind, queue string, preview ops.Preview) {
	p.printf("%s would touch %d dead letters of %s, of %d ordering keys:\n  by reason: %s\n  by type:   %s\n",
		kind, preview.Total, queue, preview.Keys, formatCounts(preview.ByReason), formatCounts(preview.ByType))
	if preview.Looked < preview.Total {
		p.printf("  of the newest %d: the rest is counted, and not looked at\n", preview.Looked)
	}
	if preview.Omitted > 0 && kind == deadletter.Replay {
		p.printf("  %d were too large to keep and are passed by\n", preview.Omitted)
	}
	if len(preview.Items) > 0 {
		p.printf("If it was replayed now, each%s:\n", map[bool]string{true: " of the newest " + strconv.Itoa(len(preview.Items))}[len(preview.Items) < preview.Total])
	}
	for _, item := range preview.Items {
		would := "not known: " + item.Unknown
		if item.Trial != nil {
			would = item.Trial.Would()
		}
		p.printf("%s %s, died of %s: %s\n", cmp.Or(item.EventID, item.ID), item.EventType, strings.TrimSpace(item.Reason+" "+item.Detail), would)
		if item.Later != nil {
			p.printf("  later messages of its key: %s\n", item.Later)
		}
		if item.Trial != nil {
			for _, c := range console.Columns[dryrun.Trial]() {
				if c.Inside != nil {
					p.items(c.Inside, c.Value(item.Trial))
				}
			}
		}
	}
}
