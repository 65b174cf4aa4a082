package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"billhook/internal/ledger/seal"
	"billhook/internal/ops"
)

// each hands over a list page after page, before it asks for the next.
func each[Item any](ctx context.Context, ask client, path string, values url.Values, take func([]Item) error) error {
	values.Set("limit", fmt.Sprint(perPage))
	for {
		var page ops.List[Item]
		if err := ask.get(ctx, path+"?"+values.Encode(), &page); err != nil {
			return err
		}
		if err := take(page.Items); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		values.Set("page", page.Next)
	}
}

func (b *books) export() *cobra.Command {
	var asCSV, seals bool
	var account, file string
	command := b.ofPeriod(&cobra.Command{
		Use: "export", Short: "Write the entries of a month, or all seals, as JSON lines or CSV", Args: cobra.NoArgs,
		Long: "Entries come in the order of their ids, each with its hash and its seal. With --account they are those with lines of\n" +
			"that account. With --seals it is the seals of all months, the oldest first: keep them where nobody who can write to\n" +
			"the store can write, and give them to ledger verify --seals. A file that --out names is there whole or not at all.",
		RunE: func(command *cobra.Command, _ []string) error {
			ctx := command.Context()
			path, values := "/v1/ops/journal/entries", b.queryOf(account)
			if seals {
				if account != "" || asCSV {
					return usageError("--seals goes with neither --account nor --csv")
				}
				path, values = "/v1/ops/journal/seals", b.query()
			}
			switch {
			case b.asJSON && (asCSV || file != ""):
				return usageError("--json goes with neither --csv nor --out")
			case b.asJSON && seals:
				all, err := b.seals(ctx)
				if err != nil {
					return err
				}
				return b.printJSON(ops.List[seal.Seal]{Items: all})
			case b.asJSON:
				all, err := pages[json.RawMessage](ctx, b.ask(), path, values, 0)
				if err != nil {
					return err
				}
				return b.printJSON(all)
			}
			return b.write(file, func(to io.Writer) (int, error) {
				switch {
				case seals:
					return b.exportSeals(ctx, to)
				case asCSV:
					return b.exportCSV(ctx, values, to)
				}
				n := 0
				err := each(ctx, b.ask(), path, values, func(items []json.RawMessage) error {
					n += len(items)
					return jsonLines(to, items)
				})
				return n, err
			})
		},
	})
	flags := command.Flags()
	flags.StringVar(&account, "account", "", "only entries with lines of this account")
	flags.BoolVar(&asCSV, "csv", false, "write CSV, a row for each line of each entry")
	flags.BoolVar(&seals, "seals", false, "write the seals instead of entries")
	flags.StringVar(&file, "out", "", "the file to write; empty: the terminal")
	return command
}

func jsonLines[T any](to io.Writer, items []T) error {
	for _, item := range items {
		line, err := json.Marshal(item)
		if err == nil {
			_, err = to.Write(append(line, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// seals are all of the tenant, the oldest first.
func (b *books) seals(ctx context.Context) ([]seal.Seal, error) {
	all, err := pages[seal.Seal](ctx, b.ask(), "/v1/ops/journal/seals", b.query(), 0)
	slices.SortFunc(all.Items, func(a, b seal.Seal) int { return cmp.Compare(a.Number, b.Number) })
	return all.Items, err
}

func (b *books) exportSeals(ctx context.Context, to io.Writer) (int, error) {
	all, err := b.seals(ctx)
	if err != nil {
		return 0, err
	}
	return len(all), jsonLines(to, all)
}

// exportCSV writes a row for each line of the entries.
func (b *books) exportCSV(ctx context.Context, values url.Values, to io.Writer) (n int, err error) {
	out := csv.NewWriter(to)
	if err := out.Write([]string{
		"tenant", "period", "entry", "event_id", "event_type", "kind", "rule", "reverts", "occurred_at", "posted_at", "account", "currency", "debit", "credit", "seal", "hash",
	}); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	err = each(ctx, b.ask(), "/v1/ops/journal/entries", values, func(entries []ops.JournalEntry) error {
		n += len(entries)
		var rows [][]string
		for _, e := range entries {
			for _, l := range e.Lines {
				rows = append(rows, row(e.Tenant, e.Period, e.ID, e.EventID, e.EventType, e.Kind, e.Rule, e.Reverts, moment(e.OccurredAt), moment(e.PostedAt),
					l.Account, l.Currency, l.Debit, l.Credit, sealNumber(e.Seal), e.Hash))
			}
		}
		if err := out.WriteAll(rows); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	})
	out.Flush()
	return n, err
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
