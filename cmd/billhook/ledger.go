package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
)

// bookCommands are the commands of the books that page or compute on this side.
func (p *program) bookCommands() []*cobra.Command {
	noun := func(name string, commands ...func(*books) *cobra.Command) *cobra.Command {
		command := &cobra.Command{Use: name}
		for _, of := range commands {
			b := &books{program: p}
			made := of(b)
			b.ask = p.worker(made)
			command.AddCommand(made)
		}
		return command
	}
	return []*cobra.Command{
		noun("accounts", (*books).statement), noun("ledger", (*books).export, (*books).verify, (*books).prove, (*books).checkProof),
	}
}

// books are those of one tenant, as the worker shows them.
type books struct {
	*program
	ask func() client

	tenant, period string
	// from and to are the first and the last of several months; both are empty where it is one.
	from, to string
}

// whose adds the flag that says whose books are meant.
func (b *books) whose(command *cobra.Command) *cobra.Command {
	command.Flags().StringVar(&b.tenant, "tenant", dedupe.DefaultTenant, "whose books")
	return command
}

func (b *books) ofPeriod(command *cobra.Command) *cobra.Command {
	flags := command.Flags()
	flags.StringVar(&b.period, "period", ledger.PeriodOf(time.Now()), "the month, in UTC")
	flags.StringVar(&b.from, "from", "", "the first of several months, such as 2027-01")
	flags.StringVar(&b.to, "to", "", "the last of several months, such as 2027-03")
	command.MarkFlagsRequiredTogether("from", "to")
	command.MarkFlagsMutuallyExclusive("period", "from")
	return b.whose(command)
}

// mostMonths bounds what one command adds up.
const mostMonths = 120

// months are those that the flags name, in order.
func (b *books) months() ([]string, error) {
	if b.from == "" {
		return []string{b.period}, nil
	}
	if !ledger.IsPeriod(b.from) || !ledger.IsPeriod(b.to) || b.from > b.to {
		return nil, usageError("--from and --to are months such as 2027-01, the earlier first")
	}
	at, _ := time.Parse("2006-01", b.from)
	var months []string
	for ; ledger.PeriodOf(at) <= b.to; at = at.AddDate(0, 1, 0) {
		if months = append(months, ledger.PeriodOf(at)); len(months) > mostMonths {
			return nil, usageError(fmt.Sprintf("--from and --to name more than %d months", mostMonths))
		}
	}
	return months, nil
}

// spanOf names several months, or the one.
func spanOf(months []string) string { return seal.Span(months[0], months[len(months)-1]) }

// query is the tenant as parameters of a request.
func (b *books) query() url.Values { return url.Values{"tenant": {b.tenant}} }

// queryOf is the tenant and a month, and the account where one is named.
func (b *books) queryOf(month, account string) url.Values {
	values := b.query()
	values.Set("period", month)
	if account != "" {
		values.Set("account", account)
	}
	return values
}

func amountOf(minor int64, currency string) string {
	if minor == 0 {
		return ""
	}
	return decimal(minor, currency)
}

func decimal(minor int64, currency string) string { return money.Text(minor, currency) }

// trial asks for the trial balance of the months.
func (b *books) trial(ctx context.Context, months []string) (all seal.TrialBalance, err error) {
	values := b.query()
	values.Set("from", months[0])
	values.Set("to", months[len(months)-1])
	return all, b.ask().get(ctx, "/v1/ops/journal/balances?"+values.Encode(), &all)
}

// totalKind stands in the rows of CSV that add up those before, in the place of an account or a kind.
const totalKind = "total"

func writeCSV(to io.Writer, rows [][]string) error {
	if err := csv.NewWriter(to).WriteAll(rows); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
