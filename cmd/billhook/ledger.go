package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/dedupe"
	"billhook/internal/ledger"
	"billhook/internal/ledger/seal"
	"billhook/internal/money"
	"billhook/internal/ops"
)

func (p *program) ledgerCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "ledger",
		Short: "Look at the books, take them elsewhere, verify and prove them, close months and revert entries",
		Long: "Entries, balances, seals and proofs of a tenant's books. Tables show amounts as people write them; JSON and CSV have\n" +
			"minor units, such as cents.",
	}
	ask := p.worker(command)
	for _, of := range []func(*books) *cobra.Command{
		(*books).show, (*books).balances, (*books).account, (*books).statement, (*books).export, (*books).verify, (*books).prove,
		(*books).periods, (*books).close, (*books).reopen, (*books).revert,
	} {
		command.AddCommand(of(&books{program: p, ask: ask})) // each has flags of its own
	}
	command.AddCommand(p.checkProof(), p.ledgerKeygen(), p.ledgerAdopt(ask))
	return command
}

// books are those of one tenant, as the worker shows them.
type books struct {
	*program
	ask func() client

	tenant, period string
}

// ofTenant adds the flag that says whose books are meant.
func (b *books) ofTenant(command *cobra.Command) *cobra.Command {
	command.Flags().StringVar(&b.tenant, "tenant", dedupe.DefaultTenant, "whose books")
	return command
}

// ofPeriod adds the flags that say whose books are meant, and which month of them.
func (b *books) ofPeriod(command *cobra.Command) *cobra.Command {
	command.Flags().StringVar(&b.period, "period", ledger.PeriodOf(time.Now()), "the month, in UTC")
	return b.ofTenant(command)
}

// query is the tenant as parameters of a request.
func (b *books) query() url.Values { return url.Values{"tenant": {b.tenant}} }

// queryOf is the tenant and the month, and the account where one is named.
func (b *books) queryOf(account string) url.Values {
	values := b.query()
	values.Set("period", b.period)
	if account != "" {
		values.Set("account", account)
	}
	return values
}

func (b *books) entryPath(id, rest string) string {
	return "/v1/ops/journal/entries/" + url.PathEscape(id) + rest + "?" + b.query().Encode()
}

// entry asks for an entry, by its id or by that of its event.
func (b *books) entry(ctx context.Context, id string) (entry ops.JournalEntry, err error) {
	err = b.ask().get(ctx, b.entryPath(id, ""), &entry)
	return entry, err
}

func (b *books) show() *cobra.Command {
	return b.ofTenant(&cobra.Command{
		Use: "show <event or entry>", Short: "Show an entry of the books, by its id or by that of the event that made it", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			entry, err := b.entry(command.Context(), args[0])
			if err != nil {
				return err
			}
			b.printEntry(entry)
			return b.printJSON(entry)
		},
	})
}

func (b *books) printEntry(e ops.JournalEntry) {
	b.printf("%s  %s\n", e.ID, e.Kind)
	for _, field := range [][2]string{
		{"event", e.EventID}, {"type", e.EventType}, {"rule", e.Rule}, {"order", e.Order}, {"reverts", e.Reverts}, {"reverted by", e.RevertedBy},
		{"period", e.Period}, {"occurred", when(e.OccurredAt)}, {"posted", when(e.PostedAt)}, {"seal", sealOf(e)}, {"hash", e.Hash},
	} {
		if field[1] != "" {
			b.printf("  %-12s %s\n", field[0], field[1])
		}
	}
	var rows [][]string
	for _, line := range e.Lines {
		rows = append(rows, row(line.Account, amountOf(line.Debit, line.Currency), amountOf(line.Credit, line.Currency), line.Currency))
	}
	b.table([]string{"ACCOUNT", "DEBIT", "CREDIT", "CURRENCY"}, rows)
}

// sealOf says which seal an entry has.
func sealOf(e ops.JournalEntry) string {
	if e.Seal == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%d, place %d", e.Seal, e.Leaf)
}

// amountOf formats one side of a line; it is empty where that side has nothing.
func amountOf(minor int64, currency string) string {
	if minor == 0 {
		return ""
	}
	return decimal(minor, currency)
}

// decimal formats an amount as people write it. A currency that ISO 4217 does not know, such as
// points, has no decimals.
func decimal(minor int64, currency string) string {
	if text, err := money.Format(minor, currency); err == nil {
		return text
	}
	return strconv.FormatInt(minor, 10)
}

func (b *books) balances() *cobra.Command {
	return b.ofPeriod(&cobra.Command{
		Use: "balances", Short: "Print the trial balance of a month: what each account had, got and has", Args: cobra.NoArgs,
		Long: "A balance is debits minus credits: what is owed to others, and revenue, is negative. All balances of a currency add up\n" +
			"to nothing, or the books are broken.",
		RunE: func(command *cobra.Command, _ []string) error {
			balance, err := b.trial(command.Context())
			if err != nil {
				return err
			}
			b.printBalances(balance)
			if err := b.printJSON(balance); err != nil {
				return err
			}
			return balanced(balance)
		},
	})
}

func (b *books) trial(ctx context.Context) (balance seal.TrialBalance, err error) {
	err = b.ask().get(ctx, "/v1/ops/journal/balances?"+b.queryOf("").Encode(), &balance)
	return balance, err
}

func (b *books) printBalances(balance seal.TrialBalance) {
	var rows [][]string
	for _, l := range balance.Balances {
		rows = append(rows, row(l.Account, l.Currency, decimal(l.Opening, l.Currency), decimal(l.Debit, l.Currency), decimal(l.Credit, l.Currency), decimal(l.Closing, l.Currency)))
	}
	if len(rows) == 0 {
		b.printf("The books of %s have nothing up to %s.\n", balance.Tenant, balance.Period)
		return
	}
	b.table([]string{"ACCOUNT", "CURRENCY", "OPENING", "DEBIT", "CREDIT", "CLOSING"}, rows)
	b.printf("Summed up to seal %d, and %d entries that are not sealed yet.\n", balance.Seal, balance.Unsealed)
}

// balanced fails where the closing balances of a currency do not add up to nothing.
func balanced(balance seal.TrialBalance) error {
	left := map[string]int64{}
	for _, l := range balance.Balances {
		left[l.Currency] += l.Closing
	}
	for currency, amount := range left {
		if amount != 0 {
			return fmt.Errorf("the balances in %s add up to %s: the books are broken; see: billhook ledger verify", currency, decimal(amount, currency))
		}
	}
	return nil
}
