package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
)

func percent(r ops.Rate) string {
	if r.Attempts() == 0 {
		return ""
	}
	return strconv.FormatInt(r.FailurePercent, 10) + " %"
}

func (p *program) queuesShow(ask func() client) *cobra.Command {
	command := &cobra.Command{
		Use: "show <queue>", Short: "Show one queue: what it declares, what waits and behind what, its targets, its newest events", Args: cobra.ExactArgs(1),
		Long: "A queue is named by id or alias. The numbers of the last hour are about: an instance that is killed loses what it has counted\n" +
			"in the last seconds, and of the hour before this one they take the part that is within 60 minutes.",
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		var q queueShown
		if err := ask().get(command.Context(), "/v1/ops/queues/"+url.PathEscape(args[0]), &q.QueueDetail); err != nil {
			return err
		}
		var reasons ops.List[deadletter.Reason]
		if err := ask().get(command.Context(), "/v1/ops/dead-letters/reasons?queue="+url.QueryEscape(q.ID), &reasons); err != nil {
			return err
		}
		q.Reasons = reasons.Items
		p.printStanding(q)
		return p.printJSON(q)
	}
	return command
}

type queueShown struct {
	ops.QueueDetail
	Reasons []deadletter.Reason `json:"reasons"`
}

func (p *program) printStanding(q queueShown) {
	p.printf("%s  %s\n", q.ID, own(p.stateOf(q.Queue)))
	for _, words := range q.Declares {
		p.printf("  %s\n", words)
	}
	if q.Paused != nil {
		p.printf("\nPaused since %s by %s: %s\n", when(q.Paused.At), q.Paused.Who, q.Paused.Why)
	}
	p.printf("\nWaiting: %s\n", cmp.Or(waiting(q.Queue), "nothing"))
	p.printf("Dead letters: %s, the oldest %s\n", openLetters(q.DeadLetters), cmp.Or(oldestLetter(q.DeadLetters), "none"))
	for _, reason := range q.Reasons {
		p.printf("  %s  %s\n", number(ops.Count{Count: reason.Count, More: reason.More}), cmp.Or(reason.Reason, "other reasons"))
	}
	h := q.LastHour
	p.printf("Last hour, about: %d in, %d processed, %d ended otherwise, %d dead-lettered, %d attempts failed and follow again", h.In, h.Processed, h.Other, h.Dead, h.Failed)
	if share := percent(h); share != "" {
		p.printf("; %s of the attempts failed", share)
	}
	p.printf(".\n")
	var rows [][]string
	for _, key := range q.Keys {
		rows = append(rows, row(key.OrderingKey, key.Place, number(key.Messages), when(key.Since), when(key.Until), key.Behind, strings.Join(key.DeadLetters, " ")))
	}
	if len(rows) > 0 {
		p.printf("\nKeys of which messages are kept:\n")
		p.table([]string{"KEY", "PLACE", "MESSAGES", "SINCE", "UNTIL", "NEXT", "DEAD LETTERS"}, rows, "SINCE", "UNTIL")
	}
	if q.KeysMore {
		p.printf("There are more.\n")
	}
	rows = nil
	for _, t := range q.Targets {
		for _, answer := range t.Last {
			rows = append(rows, row(t.Name, when(answer.At), status(answer), answer.Code, fmt.Sprintf("%d ms", answer.Milliseconds)))
		}
		p.printf("\nTarget %s: %s\n", t.Name, breakersOf(t.Target))
		p.printf("  Answers since the beginning of the hour before: %s\n", classesOf(t.Target))
	}
	if len(rows) > 0 {
		p.table([]string{"TARGET", "AT", "ANSWER", "CODE", "TOOK"}, rows, "TARGET")
	}
	p.printf("\nNewest events:\n")
	p.items(console.Columns[ops.Line](), reflect.ValueOf(q.Outcomes))
}

func status(a rates.Answer) string {
	if a.Status == 0 {
		return "none"
	}
	return strconv.FormatInt(a.Status, 10)
}

func breakersOf(t rates.Target) string {
	if len(t.Open) == 0 {
		return "no breaker is open"
	}
	first := t.Open[0]
	return fmt.Sprintf("breaker %s in %d of %d instances, the first since %s", strings.ReplaceAll(first.State, "_", "-"), len(t.Open), max(t.Instances, len(t.Open)), when(first.Since))
}

func classesOf(t rates.Target) string {
	var all []string
	for _, class := range slices.Sorted(maps.Keys(t.Answers)) {
		all = append(all, fmt.Sprintf("%s %d", class, t.Answers[class]))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func (p *program) queuesRates(ask func() client) *cobra.Command {
	var hours, days int
	command := &cobra.Command{
		Use: "rates [queue]", Short: "Show what became of deliveries, by the hour or the day, the newest first", Args: cobra.MaximumNArgs(1),
		Long: "The numbers are about: an instance that is killed loses what it has counted in the last seconds. Hours in which nothing was\n" +
			"delivered are left out; --json has them. Hours are kept for 8 days, days for 90.",
	}
	command.Flags().IntVar(&hours, "hours", 24, "how many hours to show, 192 at most")
	command.Flags().IntVar(&days, "days", 0, "show so many days instead, 90 at most")
	command.MarkFlagsMutuallyExclusive("hours", "days")
	command.RunE = show(p, ask, func(args []string) string {
		query := url.Values{}
		if len(args) > 0 {
			query.Set("queue", args[0])
		}
		if days > 0 {
			query.Set("days", strconv.Itoa(days))
		} else {
			query.Set("hours", strconv.Itoa(hours))
		}
		return "/v1/ops/rates?" + query.Encode()
	}, p.printRates)
	return command
}

func (p *program) printRates(all ops.Rates) {
	layout := "2006-01-02 15:04"
	if all.Unit == "day" {
		layout = "2006-01-02"
	}
	var rows [][]string
	for _, series := range all.Items {
		for _, b := range slices.Backward(series.Buckets) {
			if b.Counts == (rates.Counts{}) {
				continue
			}
			rows = append(rows, row(series.Queue, b.At.Format(layout), b.In, b.Processed, b.Other, b.Dead, b.Failed, percent(ops.Rate{Counts: b.Counts, FailurePercent: b.FailurePercent()})))
		}
	}
	if len(rows) == 0 {
		p.printf("Nothing was delivered.\n")
		return
	}
	p.table([]string{"QUEUE", strings.ToUpper(all.Unit) + " (UTC)", "IN", "PROCESSED", "OTHER", "DEAD", "FAILED", "FAILURES"}, rows, "OTHER")
}
