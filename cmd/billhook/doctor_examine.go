package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"billhook/catalog"
	"billhook/internal/pipeline/queues"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/installed"
	"billhook/internal/platform/gcp/pubsub"
)

func (p *program) examine(ctx context.Context, c *catalog.Catalog, target pubsub.Target, look pubsub.Look, of examined, found *diagnosis) error {
	look.Label = cmp.Or(of.name, target.Installation, "billhook")
	unread := func() []finding.Unread { return nil }
	var around installed.Found
	switch {
	case target.Emulator:
		found.LeftOut = "services, jobs, secrets and grants: an emulator has none"
	case of.pubsubOnly:
		found.LeftOut = "services, jobs, secrets and the services' grants: with --pubsub-only"
	default:
		pools := map[string]installed.Pool{}
		for _, pool := range c.Pools() {
			own := target.Pools[pool]
			pools[pool] = installed.Pool{URL: cmp.Or(own.URL, target.PushBaseURL), Account: cmp.Or(own.ServiceAccount, target.PushServiceAccount)}
		}
		installation, err := installed.Open(ctx, installed.Config{
			Project: target.ProjectID, Region: of.region, Name: look.Label, Pools: pools, TasksPool: c.TasksPool, Tasks: tasks.Scheduled, Audience: target.PushAudience,
		}, p.google.rest...)
		if err != nil {
			return err
		}
		around = installation.Examine(ctx)
		look.Accounts, look.Inherits, unread = around.Accounts, installation.Inherits, installation.Unread
	}
	queues, err := pubsub.Examine(ctx, c, target, look, p.broker()...)
	if err != nil {
		return err
	}
	for _, id := range queues.Kept {
		found.Kept = append(found.Kept, keptQueue{Queue: id})
	}
	found.Findings = append([]finding.Finding{}, slices.Concat(queues.Findings, around.Findings)...)
	found.Unread = append([]finding.Unread{}, slices.Concat(queues.Unread, around.Unread, unread())...)
	return nil
}

func (p *program) printFindings(c *catalog.Catalog, found diagnosis) {
	group := ""
	for _, f := range found.Findings {
		if of := cmp.Or(f.Queue, "of no single queue"); of != group {
			group = of
			p.printf("%s\n", group)
		}
		p.printf("  %s %s: %s\n", f.Kind, f.ID, f.Code)
		if f.Have != "" || f.Want != "" {
			p.printf("    is: %s\n    should be: %s\n", cmp.Or(f.Have, "-"), cmp.Or(f.Want, "-"))
		}
		p.printf("    %s\n    To do: %s\n", f.Effect, f.Do)
	}
	p.printf("%d queues compared, %d findings.\n", len(c.Queues), len(found.Findings))
	p.printUnread(found.Unread)
	if found.LeftOut != "" {
		p.printf("Left out: %s.\n", found.LeftOut)
	}
	for _, one := range found.Paused {
		p.printf("%s is paused since %s by %s: %s\n", one.Queue, when(one.At), one.Who, one.Why)
	}
	if found.PausesUnread != "" {
		p.printf("Who has paused which queue is not known here: %s.\n", strings.TrimSuffix(found.PausesUnread, "."))
	}
	if len(found.Off) > 0 {
		p.printf("Not running here: %s.\n", strings.Join(found.Off, ", "))
	}
	for _, one := range found.Kept {
		if one.Messages == nil {
			p.printf("%s does not run and keeps its subscription. How much waits there is not known here: the worker has not counted it.\n", one.Queue)
		} else {
			p.notes(one.state.Notes())
		}
	}
	p.printf("The tasks are run by the worker of pool %s.\n", found.TasksPool)
}

func (p *program) printUnread(all []finding.Unread) {
	var reasons []finding.Unread
	names := map[finding.Unread][]string{}
	for _, one := range all {
		r := finding.Unread{Why: one.Why, Permission: one.Permission}
		if names[r] == nil {
			reasons = append(reasons, r)
		}
		if !slices.Contains(names[r], one.What) {
			names[r] = append(names[r], one.What)
		}
	}
	for _, r := range reasons {
		p.printf("Not looked at: %s.\n    %s\n", strings.Join(names[r], ", "), r.Why)
		if r.Permission != "" {
			p.printf("    It takes the permission %s.\n", r.Permission)
		}
	}
}

type keptQueue struct {
	Queue string `json:"queue"`
	// Messages is how many wait there; nil: the worker has not counted them, or could not be asked.
	Messages *int64 `json:"messages"`
	// state is how the worker sees the queue, for its words.
	state queues.Queue
}

// countKept asks the worker how much waits for the queues. A worker that cannot be asked leaves them uncounted:
// the doctor says of the pauses why.
func (p *program) countKept(ctx context.Context, ask client, kept []keptQueue) {
	if len(kept) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	var all queues.Queues
	if ask.get(ctx, "/v1/ops/queues", &all) != nil {
		return
	}
	for i := range kept {
		for _, q := range all.Items {
			if q.ID == kept[i].Queue && q.Kept != nil {
				kept[i].Messages, kept[i].state = q.Waiting.Unacknowledged, q
			}
		}
	}
}
