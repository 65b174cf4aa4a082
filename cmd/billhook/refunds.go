package main

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/apps/payments"
)

func (p *program) refundsCommand() *cobra.Command {
	command := &cobra.Command{Use: "refunds", Short: "Look at what became of the refunds that messages have asked for"}
	ask := p.worker(command)
	command.AddCommand(p.refundsList(ask), p.refundsShow(ask))
	return command
}

func (p *program) refundsList(ask func() client) *cobra.Command {
	var state string
	var limit int
	command := &cobra.Command{
		Use: "ls", Short: "List the refunds that are under way, or those in another state, the newest first", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := pages[payments.Refund](command.Context(), ask(), "/v1/ops/refunds", url.Values{"state": {state}}, limit)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, r := range all.Items {
				rows = append(rows, refundRow(r))
			}
			p.table(refundHead, rows, "QUEUE", "SETTLED")
			if all.Next != "" {
				p.printf("There are more; raise --limit.\n")
			}
			return p.printJSON(all)
		},
	}
	command.Flags().StringVar(&state, "state", string(payments.UnderWay), "under_way, refunded, refused or all")
	oneOf(command, "state", payments.UnderWay, payments.Refunded, payments.Refused, "all")
	command.Flags().IntVar(&limit, "limit", perPage, "the most to list; 0: all")
	return command
}

func (p *program) refundsShow(ask func() client) *cobra.Command {
	var of *tenantFlag
	command := &cobra.Command{
		Use: "show <payment id>", Short: "Show the refund of a payment, and the message that it is for", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			path := "/v1/ops/refunds/" + url.PathEscape(args[0])
			var r payments.Refund
			if err := ask().get(command.Context(), of.of(path), &r); err != nil {
				return err
			}
			p.record(refundHead, refundRow(r))
			return p.printJSON(r)
		},
	}
	of = flagTenant(command)
	return command
}

var refundHead = []string{"PAYMENT", "STATE", "REASON", "AMOUNT", "SINCE", "SETTLED", "QUEUE", "EVENT"}

func refundRow(r payments.Refund) []string {
	amount := "all"
	if r.Amount != "" {
		amount = strings.TrimSpace(r.Amount + " " + r.Currency)
	}
	return row(r.PaymentID, r.State, orDash(r.Reason), amount, when(r.ReservedAt), when(r.SettledAt), r.Queue, r.EventID)
}
