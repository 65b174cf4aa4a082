package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
)

// bookCommands are the commands of the books that page or compute on this side.
func (p *program) bookCommands() []*cobra.Command {
	accounts, book := p.asks(&cobra.Command{Use: "accounts"}), p.asks(&cobra.Command{Use: "ledger"})
	accounts.AddCommand((&books{program: p}).statement())
	for _, of := range []func(*books) *cobra.Command{(*books).export, (*books).verify, (*books).prove, (*books).checkProof} {
		book.AddCommand(of(&books{program: p}))
	}
	return []*cobra.Command{accounts, book}
}

// books are those of one tenant, as the worker shows them.
type books struct {
	*program

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

// span is the first and the last of the months.
func (b *books) span() (first, last string) { return cmp.Or(b.from, b.period), cmp.Or(b.to, b.period) }

// named names the months.
func (b *books) named() string { return seal.Span(b.span()) }

// query is the tenant as parameters of a request.
func (b *books) query() url.Values { return url.Values{"tenant": {b.tenant}} }

// ofMonths are the tenant and the months.
func (b *books) ofMonths() url.Values {
	values := b.query()
	first, last := b.span()
	values.Set("from", first)
	values.Set("to", last)
	return values
}

// entries are those of the months, and of the account where one is named.
func (b *books) entries(account string) url.Values {
	values := b.ofMonths()
	values.Set("limit", strconv.Itoa(perPage))
	set(values, "account", account)
	return values
}

func amountOf(minor int64, currency string) string {
	if minor == 0 {
		return ""
	}
	return money.Text(minor, currency)
}

func writeCSV(to io.Writer, rows [][]string) error {
	if err := csv.NewWriter(to).WriteAll(rows); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
