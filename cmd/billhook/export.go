package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/platform/audit"
)

func (b *books) export() *cobra.Command {
	var asCSV, seals bool
	var account, file string
	command := b.ofPeriod(&cobra.Command{
		Use: "export", Short: "Write the entries of a month or several, or all seals, as JSON lines or CSV", Args: cobra.NoArgs,
		Long: "Entries come month by month in the order of their ids, each with its hash and its seal. With --account they are those\n" +
			"with lines of that account. With --seals it is the seals of all months, the oldest first, of all tenants unless --tenant\n" +
			"names one: keep them where nobody who can write to the store can write, and give them to ledger verify --seals. A file\n" +
			"that --out names is there whole or not at all.",
		RunE: func(command *cobra.Command, _ []string) error {
			ctx := command.Context()
			switch {
			case seals && (account != "" || asCSV || b.from != ""):
				return usageError("--seals goes with none of --account, --csv and --from")
			case b.asJSON && (asCSV || file != ""):
				return usageError("--json goes with neither --csv nor --out")
			case seals:
				return b.exportSeals(ctx, !command.Flags().Changed("tenant"), file)
			}
			if b.asJSON {
				all, err := pages[journal.Entry](ctx, b.ask(), entriesPath, b.entries(account))
				if err != nil {
					return err
				}
				return b.printJSON(console.List[journal.Entry]{Items: append([]journal.Entry{}, all...)})
			}
			return b.write(file, func(to io.Writer) (n int, err error) {
				if asCSV {
					return b.exportCSV(ctx, account, to)
				}
				err = each(ctx, b.ask(), entriesPath, b.entries(account), func(entries []journal.Entry) error {
					n += len(entries)
					return jsonLines(to, entries)
				})
				return n, err
			})
		},
	})
	flags := command.Flags()
	flags.StringVar(&account, "account", "", "only entries with lines of this account")
	flags.BoolVar(&asCSV, "csv", false, "write CSV, a row for each line of each entry, and what the lines of each currency add up to")
	flags.BoolVar(&seals, "seals", false, "write the seals instead of entries")
	flags.StringVar(&file, "out", "", "the file to write; empty: the terminal")
	return command
}

const entriesPath = "/v1/ops/journal/entries"

func jsonLines[T any](to io.Writer, items []T) error {
	for _, item := range items {
		line, err := json.Marshal(item)
		if err == nil {
			_, err = io.WriteString(to, audit.EscapeJSON(string(line))+"\n")
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

func (b *books) tenants(ctx context.Context) ([]string, error) {
	var tenants console.List[string]
	err := b.ask().get(ctx, "/v1/ops/journal/tenants", &tenants)
	return tenants.Items, err
}

func (b *books) exportSeals(ctx context.Context, all bool, file string) error {
	tenants := []string{b.tenant}
	if all {
		var err error
		if tenants, err = b.tenants(ctx); err != nil {
			return err
		}
	}
	list := console.List[seal.Seal]{Items: []seal.Seal{}}
	for _, b.tenant = range tenants {
		one, err := pages[seal.Seal](ctx, b.ask(), "/v1/ops/journal/seals", b.query())
		if err != nil {
			return err
		}
		slices.Reverse(one) // they come the newest first
		list.Items = append(list.Items, one...)
	}
	if b.asJSON {
		return b.printJSON(list)
	}
	return b.write(file, func(to io.Writer) (int, error) { return len(list.Items), jsonLines(to, list.Items) })
}

func micros(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (b *books) exportCSV(ctx context.Context, account string, to io.Writer) (n int, err error) {
	if err := writeCSV(to, [][]string{{
		"tenant", "period", "entry", "event_id", "event_type", "kind", "rule", "reverts", "occurred_at", "posted_at", "account", "currency", "debit", "credit", "seal", "hash",
	}}); err != nil {
		return 0, err
	}
	sums := map[string]seal.Sum{}
	err = each(ctx, b.ask(), entriesPath, b.entries(account), func(entries []journal.Entry) error {
		n += len(entries)
		var rows [][]string
		for _, e := range entries {
			if e.Changed {
				return errors.New(e.Notes()[0])
			}
			for _, l := range e.Lines {
				rows = append(rows, row(e.Tenant, e.Period, e.ID, e.EventID, e.EventType, e.Kind, e.Rule, e.Reverts, micros(e.OccurredAt), micros(e.PostedAt),
					l.Account, l.Currency, amountOf(l.Debit, l.Currency), amountOf(l.Credit, l.Currency), sealNumber(e.Seal), e.Hash))
				sums[l.Currency] = seal.Sum{Debit: sums[l.Currency].Debit + l.Debit, Credit: sums[l.Currency].Credit + l.Credit}
			}
		}
		return writeCSV(to, rows)
	})
	if err != nil {
		return n, err
	}
	var rows [][]string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		rows = append(rows, row(b.tenant, b.named(), "", "", "", "total", "", "", "", "", "", currency,
			money.Text(sums[currency].Debit, currency), money.Text(sums[currency].Credit, currency), "", ""))
	}
	return n, writeCSV(to, rows)
}

// write has write do its work into a file, which is there whole or not at all, or to the terminal
// where none is named.
func (b *books) write(file string, write func(io.Writer) (int, error)) error {
	if file == "" {
		_, err := write(b.stdout)
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".billhook-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	buffered := bufio.NewWriter(part)
	n, err := write(buffered)
	if err = errors.Join(err, buffered.Flush(), part.Sync(), part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	b.printf("%d written to %s\n", n, file)
	return nil
}
