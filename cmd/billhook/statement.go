package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract/money"
)

type statement struct {
	Tenant string `json:"tenant"`
	// Period is the month, such as 2026-11, or the first and the last of several: 2026-11/2027-01.
	Period  string `json:"period"`
	Account string `json:"account"`
	// Opening and Closing are debits minus credits by currency, in minor units.
	Opening map[string]int64 `json:"opening"`
	Lines   []stated         `json:"lines"`
	Closing map[string]int64 `json:"closing"`
}

// stated is a line of an entry on the account, and the balance behind it.
type stated struct {
	PostedAt   time.Time   `json:"posted_at"`
	OccurredAt time.Time   `json:"occurred_at"`
	Entry      string      `json:"entry"`
	EventID    string      `json:"event_id"`
	EventType  string      `json:"event_type,omitempty"`
	Kind       ledger.Kind `json:"kind"`
	ledger.Line
	Balance int64 `json:"balance"`
	Seal    int64 `json:"seal"`
}

func (b *books) statement() *cobra.Command {
	return b.ofPeriod(&cobra.Command{
		Use: "statement <account>", Short: "Print what moved on an account in a month or several, with the balance behind each line", Args: cobra.ExactArgs(1),
		Long: "The lines are in the order in which they were posted. An account is one of the chart of catalog/journal.yaml, or one of\n" +
			"points: of a user (points:user:<uid>), a customer (points:customer:<id>), or all of a kind (points:user).",
		RunE: func(command *cobra.Command, args []string) error {
			s, err := b.stated(command.Context(), args[0])
			if err != nil {
				return err
			}
			b.printStatement(s)
			return b.printJSON(s)
		},
	})
}

// stated puts a statement together. The opening balance of an account with totals is that of the
// trial balance; of another one it is the sum of its earlier entries, which come with those of the
// month.
func (b *books) stated(ctx context.Context, account string) (statement, error) {
	first, last := b.span()
	s := statement{Tenant: b.tenant, Period: b.named(), Account: account, Opening: map[string]int64{}, Lines: []stated{}}
	control := ledger.Control(account) == account
	want := map[string]int64{}
	values := b.entries(account)
	if !control { // it has no totals: its earlier entries add up
		values.Del("from")
		values.Del("to")
	} else {
		var balance seal.TrialBalance
		if err := b.ask().get(ctx, "/v1/ops/journal/balances?"+b.ofMonths().Encode(), &balance); err != nil {
			return statement{}, err
		}
		for _, l := range balance.Balances {
			if l.Account == account {
				s.Opening[l.Currency], want[l.Currency] = l.Opening, l.Closing
			}
		}
	}
	err := each(ctx, b.ask(), entriesPath, values, func(entries []journal.Entry) error {
		for _, e := range entries {
			if e.Changed {
				return errors.New(e.Notes()[0])
			}
			s.add(e, control, first, last)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	slices.SortStableFunc(s.Lines, func(a, b stated) int {
		return cmp.Or(a.PostedAt.Compare(b.PostedAt), strings.Compare(a.Entry, b.Entry))
	})
	s.Closing = maps.Clone(s.Opening)
	for i, line := range s.Lines {
		s.Closing[line.Currency] += line.Debit - line.Credit
		s.Lines[i].Balance = s.Closing[line.Currency]
	}
	// What is posted meanwhile is in the lines and not in the balance. A month that is over has none.
	for currency, closing := range want {
		if last < ledger.PeriodOf(time.Now()) && s.Closing[currency] != closing {
			return s, fmt.Errorf("the lines in %s add up to %s, and the trial balance says %s: entries came meanwhile, so ask again; or the books are broken, see: billhook ledger verify",
				currency, money.Text(s.Closing[currency], currency), money.Text(closing, currency))
		}
	}
	return s, nil
}

func (s *statement) add(e journal.Entry, control bool, from, to string) {
	for _, line := range e.Lines {
		if line.Account != s.Account && (!control || ledger.Control(line.Account) != s.Account) {
			continue
		}
		if _, known := s.Opening[line.Currency]; !known {
			s.Opening[line.Currency] = 0
		}
		switch {
		case from <= e.Period && e.Period <= to:
			s.Lines = append(s.Lines, stated{
				PostedAt: e.PostedAt, OccurredAt: e.OccurredAt, Entry: e.ID, EventID: e.EventID, EventType: e.EventType, Kind: e.Kind, Line: line, Seal: e.Seal,
			})
		case e.Period < from:
			s.Opening[line.Currency] += line.Debit - line.Credit
		}
	}
}

func (b *books) printStatement(s statement) {
	b.printf("%s of %s, %s\n", s.Account, s.Tenant, s.Period)
	rows := [][]string{}
	balances := func(name string, of map[string]int64) {
		for _, currency := range slices.Sorted(maps.Keys(of)) {
			rows = append(rows, row("", "", "", "", "", name, s.Account, "", "", money.Text(of[currency], currency), currency, ""))
		}
	}
	balances("opening", s.Opening)
	for _, l := range s.Lines {
		rows = append(rows, row(when(l.PostedAt), when(l.OccurredAt), l.Entry, l.EventID, l.EventType, l.Kind, l.Account,
			amountOf(l.Debit, l.Currency), amountOf(l.Credit, l.Currency), money.Text(l.Balance, l.Currency), l.Currency, sealNumber(l.Seal)))
	}
	balances("closing", s.Closing)
	if len(rows) == 0 {
		b.printf("Nothing has moved on it.\n")
		return
	}
	b.table([]string{"POSTED", "HAPPENED", "ENTRY", "EVENT", "TYPE", "KIND", "ACCOUNT", "DEBIT", "CREDIT", "BALANCE", "CURRENCY", "SEAL"}, rows, nil,
		"ENTRY", "HAPPENED", "TYPE", "SEAL", "ACCOUNT")
}

func sealNumber(number int64) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatInt(number, 10)
}
