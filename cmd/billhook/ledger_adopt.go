package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/ops"
	"billhook/internal/store"
)

// ledgerAdopt completes the entries that a release before wrote, page after page.
func (p *program) ledgerAdopt(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "adopt", Short: "Complete the entries of points that a release without seals wrote, once, so that they are sealed", Args: cobra.NoArgs,
		Long: "Entries that a release without seals wrote have no lines and no mark that they are to be sealed. This adds both, and\n" +
			"changes nothing else. It may be stopped anywhere and run again: what is complete is left alone. Run it once more after\n" +
			"the last worker of that release has stopped.",
		RunE: p.adopt(ask, "entries", "/v1/ops/journal/adopt"),
	}
}

// eventsAdopt has the job log find the records that a release before wrote, page after page.
func (p *program) eventsAdopt(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "adopt", Short: "Have the list show the events that a release without a time index recorded, once", Args: cobra.NoArgs,
		Long: "Events that a release without a time index recorded are no lines of the list; events show has them. This adds what the\n" +
			"list goes by, and changes nothing else. It may be stopped anywhere and run again: what is complete is left alone. Run it\n" +
			"once more after the last worker of that release has stopped.",
		Example: "  billhook events adopt",
		RunE:    p.adopt(ask, "events", "/v1/ops/events/adopt"),
	}
}

// adopt asks for page after page, and tells after each how far it is.
func (p *program) adopt(ask func() client, what, path string) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) error {
		all := store.Adopted{Broken: []string{}}
		for {
			var page store.Adopted
			if err := ask().post(command.Context(), path, ops.Adopt{After: all.Next, Limit: store.MaxWrites}, &page); err != nil {
				return fmt.Errorf("after %d %s: %w", all.Looked, what, err)
			}
			all.Looked, all.Adopted, all.Next = all.Looked+page.Looked, all.Adopted+page.Adopted, page.Next
			all.Broken = append(all.Broken, page.Broken...)
			p.printf("looked at %d %s, adopted %d\n", all.Looked, what, all.Adopted)
			if all.Next == "" {
				break
			}
		}
		if err := p.printJSON(all); err != nil || len(all.Broken) == 0 {
			return err
		}
		return fmt.Errorf("%d %s cannot be read and stay as they are: %s", len(all.Broken), what, strings.Join(all.Broken, ", "))
	}
}
