package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/ledger"
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
		RunE: func(command *cobra.Command, _ []string) error {
			all := ledger.Adopted{Broken: []string{}}
			for {
				var page ledger.Adopted
				if err := ask().post(command.Context(), "/v1/ops/journal/adopt", ops.Adopt{After: all.Next, Limit: store.MaxWrites}, &page); err != nil {
					return fmt.Errorf("after %d entries: %w", all.Looked, err)
				}
				all.Looked, all.Adopted, all.Next = all.Looked+page.Looked, all.Adopted+page.Adopted, page.Next
				all.Broken = append(all.Broken, page.Broken...)
				p.printf("looked at %d entries, adopted %d\n", all.Looked, all.Adopted)
				if all.Next == "" {
					break
				}
			}
			if err := p.printJSON(all); err != nil || len(all.Broken) == 0 {
				return err
			}
			return fmt.Errorf("%d entries cannot be read and stay as they are: %s", len(all.Broken), strings.Join(all.Broken, ", "))
		},
	}
}
