package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
)

// books are those of one tenant in some months, as the worker shows them.
type books struct {
	*program

	tenant, account string
	// from and to are the first and the last of the months.
	from, to string
}

// months adds the flags that say whose books are meant, and which months.
func (b *books) months(command *cobra.Command) *cobra.Command {
	flags, period := command.Flags(), ""
	flags.StringVar(&b.tenant, "tenant", dedupe.DefaultTenant, "whose books")
	flags.StringVar(&period, "period", ledger.PeriodOf(time.Now()), "the month, in UTC")
	flags.StringVar(&b.from, "from", "", "the first of several months, such as 2027-01")
	flags.StringVar(&b.to, "to", "", "the last of several months, such as 2027-03")
	command.MarkFlagsRequiredTogether("from", "to")
	command.MarkFlagsMutuallyExclusive("period", "from")
	command.PreRun = func(*cobra.Command, []string) { b.from, b.to = cmp.Or(b.from, period), cmp.Or(b.to, period) }
	return command
}

// entries hands over the entries of the account, or of all, from a month on; empty: of all months. An entry that was
// changed cannot be counted on.
func (b *books) entries(ctx context.Context, from string, take func(journal.Entry) error) error {
	values := url.Values{"tenant": {b.tenant}, "limit": {"100"}}
	if b.account != "" {
		values.Set("account", b.account)
	}
	if from != "" {
		values.Set("from", from)
		values.Set("to", b.to)
	}
	return each(ctx, b.program, "/v1/ops/journal/entries", values, func(e journal.Entry) error {
		if e.Changed {
			return errors.New(e.Notes()[0])
		}
		return take(e)
	})
}

// sealsOf are the seals of a tenant, the newest first.
func (b *books) sealsOf(ctx context.Context, tenant string) (seals []seal.Seal, err error) {
	err = each(ctx, b.program, "/v1/ops/journal/seals", url.Values{"tenant": {tenant}}, func(s seal.Seal) error {
		seals = append(seals, s)
		return nil
	})
	return seals, err
}

// tenants are those whose books have seals.
func (b *books) tenants(ctx context.Context) ([]string, error) {
	var all console.List[string]
	err := b.get(ctx, "/v1/ops/journal/tenants", &all)
	return all.Items, err
}

func (p *program) export() *cobra.Command {
	b := &books{program: p}
	var seals bool
	var file string
	command := b.months(&cobra.Command{
		Use: "export", Short: "Write the entries of a month or several, or all seals, as JSON lines or CSV", Args: cobra.NoArgs,
		Long: "Entries come month by month in the order of their ids, each with its hash and its seal. With -o csv a row is a line of an\n" +
			"entry. With --seals it is the seals of all months, the oldest first, of all tenants unless --tenant names one: keep them where nobody who can write to the store can write, and give them to\n" +
			"ledger compare. A file that --out names is there whole or not at all.",
		RunE: func(command *cobra.Command, _ []string) error {
			ctx := command.Context()
			return b.write(file, func(to io.Writer) (err error) {
				switch {
				case seals:
					tenants := []string{b.tenant}
					if !command.Flags().Changed("tenant") {
						tenants, err = b.tenants(ctx)
					}
					for _, tenant := range tenants {
						all, failed := b.sealsOf(ctx, tenant)
						slices.Reverse(all)
						err = errors.Join(err, failed, jsonLines(to, all))
					}
					return err
				case b.output == asCSV:
					return b.exportCSV(ctx, to)
				}
				return b.entries(ctx, b.from, func(e journal.Entry) error { return jsonLines(to, []journal.Entry{e}) })
			})
		},
	})
	command.Flags().StringVar(&b.account, "account", "", "only entries with lines of this account")
	command.Flags().BoolVar(&seals, "seals", false, "write the seals instead of entries")
	command.Flags().StringVar(&file, "out", "", "the file to write; empty: the terminal")
	command.MarkFlagsMutuallyExclusive("seals", "account")
	return command
}

func jsonLines[T any](to io.Writer, items []T) error {
	for _, item := range items {
		line, err := json.Marshal(item)
		if err == nil {
			_, err = io.WriteString(to, audit.Escape(string(line))+"\n")
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// exportCSV writes a row for each line of the entries.
func (b *books) exportCSV(ctx context.Context, to io.Writer) error {
	const micros = "2006-01-02T15:04:05.000000Z"
	out := csv.NewWriter(to)
	_ = out.Write(strings.Split("tenant,period,entry,event_id,event_type,kind,rule,reverts,occurred_at,posted_at,account,currency,debit,credit,seal,hash", ",")) // Error has it
	amount := func(minor int64, currency string) string {
		if minor == 0 {
			return ""
		}
		return money.Text(minor, currency)
	}
	err := b.entries(ctx, b.from, func(e journal.Entry) error {
		number := strings.TrimPrefix(strconv.FormatInt(e.Seal, 10), "0") // without a seal it is 0
		for _, l := range e.Lines {
			_ = out.Write([]string{
				e.Tenant, e.Period, e.ID, e.EventID, e.EventType, string(e.Kind), e.Rule, e.Reverts, e.OccurredAt.UTC().Format(micros), e.PostedAt.UTC().Format(micros),
				l.Account, l.Currency, amount(l.Debit, l.Currency), amount(l.Credit, l.Currency), number, e.Hash,
			})
		}
		return out.Error()
	})
	out.Flush()
	return errors.Join(err, out.Error())
}

// write has write do its work into a file, which is there whole or not at all, or to the terminal where none is named.
func (b *books) write(file string, write func(io.Writer) error) error {
	if file == "" {
		return write(b.stdout)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".billhook-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	buffered := bufio.NewWriter(part)
	if err = errors.Join(write(buffered), buffered.Flush(), part.Sync(), part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}

type statement struct {
	Tenant string `json:"tenant" show:"Tenant"`
	// Period is the month, such as 2026-11, or the first and the last of several: 2026-11/2027-01.
	Period  string `json:"period" show:"Months"`
	Account string `json:"account" show:"Account"`
	// Opening and Closing are debits minus credits by currency, in minor units.
	Opening map[string]int64 `json:"opening"`
	Lines   []stated         `json:"lines" show:"Lines"`
	Closing map[string]int64 `json:"closing"`
}

// stated is a line of an entry on the account, and the balance behind it.
type stated struct {
	PostedAt   time.Time   `json:"posted_at" show:"Posted"`
	OccurredAt time.Time   `json:"occurred_at" show:"Happened,less"`
	Entry      string      `json:"entry" show:"Entry,less"`
	EventID    string      `json:"event_id" show:"Event"`
	EventType  string      `json:"event_type,omitempty" show:"Type,less"`
	Kind       ledger.Kind `json:"kind" show:"Kind"`
	ledger.Line
	Balance int64 `json:"balance" show:"Balance" in:"currency"`
	Seal    int64 `json:"seal" show:"Seal,less"`
}

func (s statement) Notes() (notes []string) {
	if len(s.Lines) == 0 {
		notes = append(notes, "Nothing has moved on it.")
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Opening)) {
		notes = append(notes, fmt.Sprintf("%s: opening %s, closing %s", currency, money.Text(s.Opening[currency], currency), money.Text(s.Closing[currency], currency)))
	}
	return notes
}

func (p *program) statement() *cobra.Command {
	b := &books{program: p}
	return b.months(&cobra.Command{
		Use: "statement <account>", Short: "Print the entries of an account in one month or several, with the balance after each", Args: cobra.ExactArgs(1),
		Long: "The lines are in the order in which they were posted. An account is one of the chart of catalog/journal.yaml, or one of\n" +
			"points: of a user (points:user:<uid>), a customer (points:customer:<id>), or all of a kind (points:user).",
		RunE: func(command *cobra.Command, args []string) error {
			b.account = args[0]
			s, err := b.stated(command.Context())
			if err != nil {
				return err
			}
			return shows(p, s)
		},
	})
}

// stated puts a statement together. The opening balance of an account with totals is that of the trial balance; of
// another one it is the sum of its earlier entries, which come with those of the month.
func (b *books) stated(ctx context.Context) (statement, error) {
	s := statement{Tenant: b.tenant, Period: seal.Span(b.from, b.to), Account: b.account, Opening: map[string]int64{}, Lines: []stated{}}
	control, from := ledger.Control(b.account) == b.account, ""
	if control {
		var trial seal.TrialBalance
		months := url.Values{"tenant": {b.tenant}, "from": {b.from}, "to": {b.to}}
		from = b.from
		if err := b.get(ctx, "/v1/ops/journal/balances?"+months.Encode(), &trial); err != nil {
			return s, err
		}
		for _, l := range trial.Balances {
			if l.Account == b.account {
				s.Opening[l.Currency] = l.Opening
			}
		}
	}
	err := b.entries(ctx, from, func(e journal.Entry) error {
		for _, line := range e.Lines {
			switch of := line.Account == b.account || control && ledger.Control(line.Account) == b.account; {
			case !of:
			case e.Period < b.from:
				s.Opening[line.Currency] += line.Debit - line.Credit
			case e.Period <= b.to:
				s.Opening[line.Currency] += 0 // it is there
				s.Lines = append(s.Lines, stated{e.PostedAt, e.OccurredAt, e.ID, e.EventID, e.EventType, e.Kind, line, 0, e.Seal})
			}
		}
		return nil
	})
	slices.SortStableFunc(s.Lines, func(a, b stated) int {
		return cmp.Or(a.PostedAt.Compare(b.PostedAt), strings.Compare(a.Entry, b.Entry))
	})
	s.Closing = maps.Clone(s.Opening)
	for i, line := range s.Lines {
		s.Closing[line.Currency] += line.Debit - line.Credit
		s.Lines[i].Balance = s.Closing[line.Currency]
	}
	return s, err
}

// compared is what a comparison of seals has come to.
type compared struct {
	Kept     int64          `json:"kept_seals" show:"Kept seals"`
	Findings []seal.Finding `json:"findings" show:"Findings"`
	// Unkept are the tenants of which the file has no seal: of them nobody finds that all was sealed again.
	Unkept []string `json:"tenants_without_kept_seals,omitempty" show:"Tenants without kept seals"`
}

func (p *program) compare() *cobra.Command {
	b := &books{program: p}
	return &cobra.Command{
		Use: "compare <file>", Short: "Compare the seals with those exported to a file before; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "Who can write to the whole store can seal everything again, and it verifies. That is found here, with a file that ledger\n" +
			"export --seals has written before and that they could not write to. It exits with 1 where anything is found.",
		RunE: func(command *cobra.Command, args []string) error {
			kept, err := readSeals(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			tenants, err := b.tenants(command.Context())
			c, of := compared{Findings: []seal.Finding{}}, map[string]bool{}
			for _, s := range kept { // the whole chain of its tenant may be gone
				of[s.Tenant] = true
			}
			c.Unkept = slices.DeleteFunc(tenants, func(tenant string) bool { return of[tenant] })
			for _, tenant := range slices.Sorted(maps.Keys(of)) {
				there, failed := b.sealsOf(command.Context(), tenant)
				if err = errors.Join(err, failed); err != nil {
					return err
				}
				found, n := seal.AgainstKept(tenant, kept, there)
				c.Kept, c.Findings = c.Kept+n, append(c.Findings, found...)
			}
			if err = errors.Join(err, shows(p, c)); err == nil && len(c.Findings) > 0 {
				err = fmt.Errorf("the seals are not those that were kept: %d findings", len(c.Findings))
			}
			return err
		},
	}
}

func readSeals(file string, stdin io.Reader) (seals []seal.Seal, err error) {
	text, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var s seal.Seal
		switch err := decoder.Decode(&s); {
		case errors.Is(err, io.EOF):
			return seals, nil
		case err != nil:
			return nil, fmt.Errorf("%s: seal %d is not JSON: %w", file, len(seals)+1, err)
		}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%s: seal %d of %s: %w", file, s.Number, s.Tenant, err)
		}
		seals = append(seals, s)
	}
}

func (p *program) checkProof() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use: "check-proof <file>", Short: "Check a proof against exported seals, offline; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "The file is what ledger prove -o json prints, or the proof in it. Its seal must be among those that ledger export --seals has written.",
		RunE: func(command *cobra.Command, args []string) error {
			text, unread := readFile(args[0], command.InOrStdin())
			kept, err := readSeals(file, command.InOrStdin())
			if err := errors.Join(unread, err); err != nil {
				return err
			}
			var printed seal.Proof
			if json.Unmarshal(text, &printed) == nil && printed.Proof != "" {
				text = []byte(printed.Proof)
			}
			proven, err := seal.CheckProof(text, kept)
			if err != nil {
				return err
			}
			p.printf("The entry is number %d of %d in seal %d of tenant %s, which is the one that was kept.\n  seal %s\n  root %s\n%s\n",
				proven.Index+1, proven.Count, proven.Seal, proven.Tenant, proven.SealHash, proven.Root, proven.Entry)
			return p.printJSON(proven)
		},
	}
	command.Flags().StringVar(&file, "seals", "", "a file with seals that were kept elsewhere; required")
	_ = command.MarkFlagRequired("seals") // it is there
	return command
}
