package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/gcp/pubsub"
)

func queuePath(queue, what string) string {
	return "/v1/ops/queues/" + url.PathEscape(queue) + "/" + what
}

func (p *program) queuesSwitch(ask func() client, verb, short string) *cobra.Command {
	command := &cobra.Command{Use: verb + " <queue> --why <reason>", Short: short}
	var why reason
	var pools poolFlags
	command.Args = cobra.ExactArgs(1)
	command.Long = "The queue's subscription loses its push endpoint, or gets it back: a push that is under way ends as ever, and nothing else of\n" +
		"the queue is attempted, refused or dead-lettered meanwhile. The worker does it where it was granted that. Where it was not,\n" +
		"this command does it with your own credentials, in GOOGLE_CLOUD_PROJECT; to resume, it needs PUSH_BASE_URL, PUSH_AUDIENCE and\n" +
		"PUSH_SERVICE_ACCOUNT as provision does. It reports what the subscription does afterwards, and fails where that is not what was\n" +
		"asked for. Run again, it mends what was left half done."
	why.flag(command)
	command.Flags().BoolVar(&why.dryRun, "dry-run", false, "show how the queue stands, and do nothing")
	pools.add(command)
	command.PreRunE = why.check
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, worker := command.Context(), ask()
		var stands ops.QueuePause
		if why.dryRun {
			if err := worker.get(ctx, queuePath(args[0], "pause"), &stands); err != nil {
				return err
			}
			p.printPause(stands)
			return p.printJSON(stands)
		}
		if err := worker.post(ctx, queuePath(args[0], verb), pause.Change{Why: why.why}, &stands); err != nil {
			return err
		}
		if !stands.Settled() && !stands.Granted {
			changed := stands.Changed
			stands.Subscription, stands.Problem = p.switchMyself(ctx, stands.Outcome, pools)
			mine, problem := stands.Subscription, stands.Problem
			// Somebody else may have changed the record meanwhile.
			if err := worker.get(ctx, queuePath(stands.Queue, "pause"), &stands); err != nil {
				return err
			}
			stands.Changed, stands.Subscription, stands.Problem = changed, mine, problem
		}
		p.printPause(stands)
		if err := p.printJSON(stands); err != nil {
			return err
		}
		if !stands.Settled() {
			return fmt.Errorf("the subscription of %s is %s, and should be %s; run the command again once the cause is mended", stands.Queue, stands.Subscription, pause.Wanted(stands.Pause))
		}
		return nil
	}
	return command
}

// switchMyself has the queue's subscription follow its record, with the operator's own credentials. It
// returns what the subscription does then, and what has failed.
func (p *program) switchMyself(ctx context.Context, of pause.Outcome, pools poolFlags) (pause.Standing, string) {
	if p.getenv("GOOGLE_CLOUD_PROJECT") == "" {
		return pause.Unknown, "the worker may not change subscriptions; set GOOGLE_CLOUD_PROJECT to do it with your own credentials"
	}
	c, err := p.catalog()
	if err != nil {
		return pause.Unknown, err.Error()
	}
	q, ok := c.Queue(of.Queue)
	if !ok {
		return pause.Unknown, "this catalog has no such queue; CATALOG_DIR names another"
	}
	target := pubsub.Target{Names: p.env.names(), Emulator: p.env.PubSubEmulator != ""}
	if of.Pause == nil {
		if target, err = p.target(pools); err != nil {
			return pause.Unknown, err.Error()
		}
	}
	subscriptions, err := pubsub.NewSwitch(ctx, target, p.broker()...)
	if err != nil {
		return pause.Unknown, err.Error()
	}
	defer func() { _ = subscriptions.Close() }() // what was asked has been answered
	if of.Pause != nil {
		err = subscriptions.Pause(ctx, q, of.Pause.At)
	} else {
		err = subscriptions.Resume(ctx, q)
	}
	stands, unread := subscriptions.Standing(ctx, q)
	if unread != nil {
		stands = pause.Unknown
	}
	if err = errors.Join(err, unread); err != nil {
		return stands, err.Error()
	}
	return stands, ""
}

var inWords = map[pause.Standing]string{
	pause.Pushing:  "It pushes.",
	pause.Paused:   "It pushes nothing.",
	pause.Undone:   "It is marked as paused and pushes all the same: somebody has given it its endpoint past Billhook.",
	pause.Unmarked: "It pushes nothing and is not marked as paused: somebody has taken its endpoint past Billhook.",
	pause.Missing:  "There is none.",
	pause.Unknown:  "It could not be read.",
}

func (p *program) printPause(stands ops.QueuePause) {
	if stands.Pause == nil {
		p.printf("%s is not paused. Its subscription: %s\n", stands.Queue, inWords[stands.Subscription])
	} else {
		p.printf("%s is paused since %s by %s: %s\nIts subscription: %s\n", stands.Queue, when(stands.Pause.At),
			stands.Pause.Who, stands.Pause.Why, inWords[stands.Subscription])
	}
	if stands.Problem != "" {
		p.printf("Why: %s\n", stands.Problem)
	}
	if stands.Pause == nil {
		return
	}
	p.printf("What is published waits in Pub/Sub, the first of it until %s: a message is kept for %s. What waited before goes earlier.\n",
		when(stands.KeptUntil), inDays(stands.RetentionSeconds))
	if stands.MessageTTLSeconds > 0 {
		p.printf("A message older than %s is dropped when the queue is resumed: from %s on the first of what is published now.\n",
			inDays(stands.MessageTTLSeconds), when(stands.DroppedFrom))
	}
	p.printf("Terraform refuses to plan until paused_queues names %s. Have it pushed again by: billhook queues resume %s --why ...\n", stands.Queue, stands.Queue)
}

// inDays formats a length of time, in days where it is whole days.
func inDays(seconds int64) string {
	const day = 24 * 60 * 60
	if seconds >= 2*day && seconds%day == 0 {
		return fmt.Sprintf("%d days", seconds/day)
	}
	return age(seconds)
}

func (p *program) queuesHistory(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "history <queue>", Short: "Show who paused and resumed a queue, when and why, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			var stands ops.QueuePause
			if err := ask().get(command.Context(), queuePath(args[0], "pause"), &stands); err != nil {
				return err
			}
			return columns[audit.Entry]{
				names: []string{"AT", "ACTION", "WHO", "WHY"}, none: "Nobody has paused it.",
				row: func(c audit.Entry) []string { return row(when(c.At), c.Action, c.Who, c.Why) },
			}.list(command.Context(), p, ask(), queuePath(stands.Queue, "changes"), nil, 0)
		},
	}
}

// pausesTimeout bounds how long the doctor waits for the worker's word on who paused what.
const pausesTimeout = 10 * time.Second

// pauses asks the worker which queues are paused; nil: it cannot be asked, for the reason.
func (p *program) pauses(ctx context.Context, ask client) (recorded map[string]pause.Pause, unread error) {
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	all, err := pages[pause.Pause](ctx, ask, "/v1/ops/pauses", nil, 0)
	if err != nil {
		return nil, err
	}
	recorded = map[string]pause.Pause{}
	for _, one := range all.Items {
		recorded[one.Queue] = one
	}
	return recorded, nil
}
