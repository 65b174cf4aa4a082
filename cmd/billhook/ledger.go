package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
)

func (p *program) ledgerCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "ledger",
		Short: "Look at the books, take them elsewhere, verify and prove them, close months and revert entries",
		Long: "Entries, balances, seals and proofs of a tenant's books. Tables and CSV show amounts as people write them; JSON has\n" +
			"minor units, such as cents.",
	}
	ask := p.worker(command)
	for _, of := range []func(*books) *cobra.Command{
		(*books).show, (*books).balances, (*books).account, (*books).statement, (*books).export, (*books).verify, (*books).prove,
		(*books).periods, (*books).close, (*books).reopen, (*books).revert,
	} {
		command.AddCommand(of(&books{program: p, ask: ask})) // each has flags of its own
	}
	command.AddCommand(p.checkProof())
	return command
}

// books are those of one tenant, as the worker shows them.
type books struct {
	*program
	ask func() client

	tenant, period string
	// from and to are the first and the last of several months; both are empty where it is one.
	from, to string
}

// ofTenant is a question about the books of one tenant.
func (b *books) ofTenant(q question) question {
	q.flags, q.usual = map[string]string{"tenant": "whose books"}, map[string]string{"tenant": dedupe.DefaultTenant}
	return q
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

// spanOf names several months, in the form of ISO 8601, or the one.
func spanOf(months []string) string {
	first, last := months[0], months[len(months)-1]
	if first == last {
		return first
	}
	return first + "/" + last
}

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

const entryPath = "/v1/ops/journal/entries/{}"

func (b *books) show() *cobra.Command {
	return shows(b.program, b.ask, b.ofTenant(question{
		use: "show <event or entry>", short: "Show an entry of the books, by its id or by that of the event that made it", path: entryPath,
	}), b.printEntry)
}

func (b *books) printEntry(e ops.JournalEntry) {
	b.printf("%s  %s\n", e.ID, e.Kind)
	for _, field := range [][2]string{
		{"event", e.EventID}, {"type", e.EventType}, {"rule", e.Rule}, {"order", e.Order}, {"reverts", e.Reverts}, {"reverted by", e.RevertedBy},
		{"period", e.Period}, {"occurred", when(e.OccurredAt)}, {"posted", when(e.PostedAt)}, {"seal", sealOf(e)}, {"hash", e.Hash}, {"changed", changedAfter(e)},
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

// changedAfter says of an entry that was changed that it was.
func changedAfter(e ops.JournalEntry) string {
	switch {
	case !e.Changed:
		return ""
	case e.Seal == 0:
		return "after it was posted: it cannot be read"
	case e.Hash == "":
		return "after it was sealed: it cannot be read"
	default:
		return "after it was sealed"
	}
}

func sealOf(e ops.JournalEntry) string {
	if e.Seal == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%d, place %d", e.Seal, e.Leaf)
}

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
	var asCSV bool
	command := b.ofPeriod(&cobra.Command{
		Use: "balances", Short: "Print the trial balance of a month or of several: what each account had, got and has", Args: cobra.NoArgs,
		Long: "A balance is debits minus credits: what is owed to others, and revenue, is negative. All balances of a currency add up\n" +
			"to nothing, or the books are broken.",
		RunE: func(command *cobra.Command, _ []string) error {
			balance, err := b.trial(command.Context())
			switch {
			case err != nil:
				return err
			case asCSV && !b.asJSON:
				err = b.csvBalances(balance)
			default:
				b.printBalances(balance)
				err = b.printJSON(balance)
			}
			if err != nil {
				return err
			}
			return balanced(balance)
		},
	})
	command.Flags().BoolVar(&asCSV, "csv", false, "print CSV: a row for each account and currency, and one for all of a currency")
	return command
}

// trial asks for the trial balance of each month. It opens with what the first opens with.
func (b *books) trial(ctx context.Context) (all seal.TrialBalance, err error) {
	months, err := b.months()
	if err != nil {
		return all, err
	}
	sums := map[[2]string]seal.Balance{}
	for i, month := range months {
		var one seal.TrialBalance
		if err := b.ask().get(ctx, "/v1/ops/journal/balances?"+b.queryOf(month, "").Encode(), &one); err != nil {
			return all, err
		}
		for _, l := range one.Balances {
			of := [2]string{l.Account, l.Currency}
			if sum, known := sums[of]; known || i > 0 {
				l.Opening, l.Debit, l.Credit = sum.Opening, sum.Debit+l.Debit, sum.Credit+l.Credit
				l.Closing = l.Opening + l.Debit - l.Credit
			}
			sums[of] = l
		}
		all = one
	}
	all.Period, all.Balances = spanOf(months), slices.SortedFunc(maps.Values(sums), func(a, b seal.Balance) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Currency, b.Currency))
	})
	return all, nil
}

func (b *books) csvBalances(balance seal.TrialBalance) error {
	rows := [][]string{{"tenant", "period", "account", "currency", "opening", "debit", "credit", "closing"}}
	totals := map[string]seal.Balance{}
	add := func(l seal.Balance) {
		rows = append(rows, row(balance.Tenant, balance.Period, l.Account, l.Currency, decimal(l.Opening, l.Currency), decimal(l.Debit, l.Currency),
			decimal(l.Credit, l.Currency), decimal(l.Closing, l.Currency)))
	}
	for _, l := range balance.Balances {
		add(l)
		sum := totals[l.Currency]
		totals[l.Currency] = seal.Balance{
			Account: totalKind, Currency: l.Currency, Opening: sum.Opening + l.Opening, Debit: sum.Debit + l.Debit, Credit: sum.Credit + l.Credit, Closing: sum.Closing + l.Closing,
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		add(totals[currency])
	}
	return writeCSV(b.stdout, rows)
}

// totalKind stands in the rows of CSV that add up those before, in the place of an account or a kind.
const totalKind = "total"

func writeCSV(to io.Writer, rows [][]string) error {
	if err := csv.NewWriter(to).WriteAll(rows); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
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

func balanced(balance seal.TrialBalance) error {
	if len(balance.Changed) > 0 {
		return fmt.Errorf("entries were changed, cannot be read and are left out: %s; see: billhook ledger verify", strings.Join(balance.Changed, ", "))
	}
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
