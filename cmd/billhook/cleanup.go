package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
)

// eventsCleanup removes the records of events that have expired, page after page.
func (p *program) eventsCleanup(ask func() client) *cobra.Command {
	var older string
	var dryRun, yes bool
	command := &cobra.Command{
		Use: "cleanup --older-than <age>", Short: "Remove the records of events that have expired, where the database's TTL has not done it", Args: cobra.NoArgs,
		Long: "It looks at the records of events that were completed longer ago than that, counts those that have expired, and asks.\n" +
			"A record that has not expired stays: without it a late duplicate of its event would be processed.",
		RunE: func(command *cobra.Command, _ []string) error {
			if _, err := ops.ParseAge(older); err != nil {
				return usageError("--older-than takes an age such as 36h or 58d")
			}
			ctx, worker := command.Context(), ask()
			found, err := p.clean(ctx, worker, older, true)
			if err != nil {
				return err
			}
			p.printf("%d records of %d have expired and would be removed; %d are as old and stay.\n", found.Removed, found.LookedAt, found.Remembered)
			if dryRun || found.Removed == 0 {
				return p.printJSON(found)
			}
			if err := p.confirm(command.InOrStdin(), yes, strconv.Itoa(found.Removed), "remove them"); err != nil {
				return err
			}
			done, err := p.clean(ctx, worker, older, false)
			if err != nil {
				return fmt.Errorf("after %d removed: %w", done.Removed, err)
			}
			p.printf("%d records are removed.\n", done.Removed)
			return p.printJSON(done)
		},
	}
	command.Flags().StringVar(&older, "older-than", "", "how long ago the events were completed, at least: an age such as 36h or 58d; required")
	_ = command.MarkFlagRequired("older-than") // it is there
	command.Flags().BoolVar(&dryRun, "dry-run", false, "count, and remove nothing")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return command
}

// clean asks for page after page of a cleanup, and adds up what they say.
func (p *program) clean(ctx context.Context, worker client, older string, dryRun bool) (ops.Cleaned, error) {
	all := ops.Cleaned{DryRun: dryRun}
	values := url.Values{"older_than": {older}, "dry_run": {strconv.FormatBool(dryRun)}}
	for {
		var page ops.Cleaned
		if err := worker.post(ctx, "/v1/ops/cleanup?"+values.Encode(), nil, &page); err != nil {
			return all, err
		}
		all.LookedAt, all.Removed, all.Remembered = all.LookedAt+page.LookedAt, all.Removed+page.Removed, all.Remembered+page.Remembered
		if page.Next == "" {
			return all, nil
		}
		values.Set("page", page.Next)
	}
}
