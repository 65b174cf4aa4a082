package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

// queuesCommand are the commands of queues that go on here where the worker may not change subscriptions.
func (p *program) queuesCommand() *cobra.Command {
	queues := p.asks(&cobra.Command{Use: "queues"})
	queues.AddCommand(
		p.queuesSwitch("pause", "Have a queue's messages wait in Pub/Sub, without an attempt, until it is resumed"),
		p.queuesSwitch("resume", "Have a paused queue's messages pushed again"))
	return queues
}

func (p *program) queuesSwitch(verb, short string) *cobra.Command {
	command := &cobra.Command{Use: verb + " <queue> --why <reason>", Short: short, Args: cobra.ExactArgs(1)}
	var why reason
	var pools poolFlags
	command.Long = "The queue's subscription loses its push endpoint, or gets it back: a push that is under way ends as ever, and nothing else of\n" +
		"the queue is attempted, refused or dead-lettered meanwhile. The worker does it where it was granted that. Where it was not,\n" +
		"this command does it with your own credentials, in GOOGLE_CLOUD_PROJECT; to resume, it needs PUSH_BASE_URL, PUSH_AUDIENCE and\n" +
		"PUSH_SERVICE_ACCOUNT as provision does. It reports what the subscription does afterwards, and fails where that is not what was\n" +
		"asked for. Run again, it mends what was left half done."
	why.required(command)
	pools.add(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, worker, path := command.Context(), p.ask(), "/v1/ops/queues/"+url.PathEscape(args[0])+"/"
		var before, stands pause.State
		if err := worker.get(ctx, path+"pause", &before); err != nil {
			return err
		}
		p.notes(before.Notes())
		if goOn, err := why.confirmed(p, command, before, args[0], verb+" it"); !goOn {
			return err
		}
		if err := worker.post(ctx, path+verb, console.Change{Why: why.why}, &stands); err != nil {
			return err
		}
		if !stands.Settled() && !stands.Granted {
			changed, now := stands.Changed, pause.State{}
			mine, problem := p.switchMyself(ctx, stands, pools)
			// Somebody else may have changed the record meanwhile.
			if err := worker.get(ctx, path+"pause", &now); err != nil {
				return err
			}
			stands = now
			stands.Changed, stands.Subscription, stands.Problem = changed, mine, problem
		}
		p.notes(stands.Notes())
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
func (p *program) switchMyself(ctx context.Context, of pause.State, pools poolFlags) (pause.Standing, string) {
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

// pausesTimeout bounds how long the doctor waits for the worker's word on who paused what.
const pausesTimeout = 10 * time.Second

// pauses asks the worker which queues are paused; nil: it cannot be asked, for the reason.
func (p *program) pauses(ctx context.Context, ask client) (recorded map[string]pause.Pause, unread error) {
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	all, err := pages[pause.Pause](ctx, ask, "/v1/ops/pauses", url.Values{})
	if err != nil {
		return nil, err
	}
	recorded = map[string]pause.Pause{}
	for _, one := range all {
		recorded[one.Queue] = one
	}
	return recorded, nil
}
