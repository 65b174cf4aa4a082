package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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

// entries is the command that lists entries, as another one takes its flags; change is made to each.
func (p *program) entries(change func(*console.Field), run func(ctx context.Context, a *asked, in console.Input) error) *cobra.Command {
	list, _ := p.known.Find("journal ls")
	list.Fields = slices.DeleteFunc(slices.Clone(list.Fields), func(f console.Field) bool { return f.Name == "limit" })
	for i := range list.Fields {
		change(&list.Fields[i])
	}
	return p.command(list, func(ctx context.Context, a *asked) error {
		in, err := a.input(a.Operation, nil)
		if err != nil {
			return err
		}
		return run(ctx, a, in)
	})
}

// eachEntry hands over the entries that were asked for. One that was changed cannot be counted on.
func (a *asked) eachEntry(ctx context.Context, in console.Input, take func(journal.Entry) error) error {
	return each(ctx, a.program, a.Pattern, in.Query, func(e journal.Entry) error {
		if e.Changed {
			return errors.New(e.Notes()[0])
		}
		return take(e)
	})
}

// sealsOf are the seals of a tenant, the newest first.
func (p *program) sealsOf(ctx context.Context, tenant string) (seals []seal.Seal, err error) {
	err = each(ctx, p, "/v1/ops/journal/seals", url.Values{"tenant": {tenant}}, func(s seal.Seal) error {
		seals = append(seals, s)
		return nil
	})
	return seals, err
}

// tenants are those whose books have seals.
func (p *program) tenants(ctx context.Context) ([]string, error) {
	var all console.List[string]
	err := p.get(ctx, "/v1/ops/journal/tenants", &all)
	return all.Items, err
}

func (p *program) export() *cobra.Command {
	var seals bool
	var file string
	command := p.entries(func(*console.Field) {}, func(ctx context.Context, a *asked, in console.Input) error {
		return p.write(file, func(to io.Writer) error {
			switch {
			case seals:
				return p.exportSeals(ctx, to, in.Query.Get("tenant"))
			case p.output == asCSV:
				return a.exportCSV(ctx, to, in)
			}
			return a.eachEntry(ctx, in, func(e journal.Entry) error { return jsonLines(to, []journal.Entry{e}) })
		})
	})
	command.Use, command.Short = "export", "Write the entries of a month or several, or all seals, as JSON lines or CSV"
	command.Long = "Entries come month by month in the order of their ids, each with its hash and its seal. With -o csv a row is a line of an\n" +
		"entry. With --seals it is the seals of all months, the oldest first, of all tenants unless --tenant names one: keep them\n" +
		"where nobody who can write to the store can write, and give them to ledger compare. A file that --out names is there whole\n" +
		"or not at all."
	command.Flags().BoolVar(&seals, "seals", false, "write the seals instead of entries")
	command.Flags().StringVar(&file, "out", "", "the file to write; empty: the terminal")
	command.MarkFlagsMutuallyExclusive("seals", "account")
	return command
}

// exportSeals writes the seals of a tenant, or of all.
func (p *program) exportSeals(ctx context.Context, to io.Writer, tenant string) (err error) {
	tenants := []string{tenant}
	if tenant == "" {
		tenants, err = p.tenants(ctx)
	}
	for _, tenant := range tenants {
		all, failed := p.sealsOf(ctx, tenant)
		slices.Reverse(all)
		err = errors.Join(err, failed, jsonLines(to, all))
	}
	return err
}

// exportCSV writes a row for each line of the entries.
func (a *asked) exportCSV(ctx context.Context, to io.Writer, in console.Input) error {
	of := a.tabled(a.Columns)
	lines := console.Columns[ledger.Line]()
	if err := writeCSV(to, [][]string{slices.Concat(headings(of), headings(lines))}); err != nil {
		return err
	}
	return a.eachEntry(ctx, in, func(e journal.Entry) error {
		var rows [][]string
		for _, l := range e.Lines {
			rows = append(rows, slices.Concat(a.cells(of, e), a.cells(lines, l)))
		}
		return writeCSV(to, rows)
	})
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

// write has write do its work into a file, which is there whole or not at all, or to the terminal where none is named.
func (p *program) write(file string, write func(io.Writer) error) error {
	if file == "" {
		return write(p.stdout)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".billhook-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err = errors.Join(write(part), part.Sync(), part.Close()); err == nil {
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
	command := p.entries(func(f *console.Field) {
		if f.Name == "account" {
			f.Argument, f.Required, f.Called = true, true, "account"
		}
	}, func(ctx context.Context, a *asked, in console.Input) error {
		s, err := a.stated(ctx, in)
		if err != nil {
			return err
		}
		return show(p, s)
	})
	command.Use, command.Short = "statement <account>", "Print the entries of an account in one month or several, with the balance after each"
	command.Long = "The lines are in the order in which they were posted. An account is one of the chart of catalog/journal.yaml, or one of\n" +
		"points: of a user (points:user:<uid>), a customer (points:customer:<id>), or all of a kind (points:user)."
	return command
}

// stated puts a statement together. The opening balance of an account with totals is that of the trial balance; of
// another one it is the sum of its earlier entries, for the worker lists those of all months.
func (a *asked) stated(ctx context.Context, in console.Input) (statement, error) {
	account, month := in.Query.Get("account"), cmp.Or(in.Query.Get("period"), ledger.PeriodOf(time.Now()))
	from, to := cmp.Or(in.Query.Get("from"), month), cmp.Or(in.Query.Get("to"), month)
	s := statement{Tenant: cmp.Or(in.Query.Get("tenant"), dedupe.DefaultTenant), Period: seal.Span(from, to), Account: account, Opening: map[string]int64{}, Lines: []stated{}}
	control := ledger.Control(account) == account
	if !control {
		in.Query = url.Values{"tenant": {s.Tenant}, "account": {account}}
	} else {
		var trial seal.TrialBalance
		if err := a.get(ctx, "/v1/ops/journal/balances?"+url.Values{"tenant": {s.Tenant}, "from": {from}, "to": {to}}.Encode(), &trial); err != nil {
			return s, err
		}
		for _, l := range trial.Balances {
			if l.Account == account {
				s.Opening[l.Currency] = l.Opening
			}
		}
	}
	err := a.eachEntry(ctx, in, func(e journal.Entry) error {
		for _, line := range e.Lines {
			switch of := line.Account == account || control && ledger.Control(line.Account) == account; {
			case !of:
			case e.Period < from:
				s.Opening[line.Currency] += line.Debit - line.Credit
			case e.Period <= to:
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

func (c compared) Notes() []string {
	if len(c.Findings) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("Kept seals that are as they were: %d.", c.Kept)}
}

func (c compared) Failure() string {
	if len(c.Findings) == 0 {
		return ""
	}
	return fmt.Sprintf("the seals are not those that were kept: %d findings", len(c.Findings))
}

func (p *program) compare() *cobra.Command {
	return &cobra.Command{
		Use: "compare <file>", Short: "Compare the seals with those exported to a file before; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "Who can write to the whole store can seal everything again, and it verifies. That is found here, with a file that ledger\n" +
			"export --seals has written before and that they could not write to. It exits with 1 where anything is found.",
		RunE: func(command *cobra.Command, args []string) error {
			kept, err := readSeals(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			tenants, err := p.tenants(command.Context())
			c, of := compared{Findings: []seal.Finding{}}, map[string]bool{}
			for _, s := range kept { // the whole chain of its tenant may be gone
				of[s.Tenant] = true
			}
			c.Unkept = slices.DeleteFunc(tenants, func(tenant string) bool { return of[tenant] })
			for _, tenant := range slices.Sorted(maps.Keys(of)) {
				there, failed := p.sealsOf(command.Context(), tenant)
				if err = errors.Join(err, failed); err != nil {
					return err
				}
				found, n := seal.AgainstKept(tenant, kept, there)
				c.Kept, c.Findings = c.Kept+n, append(c.Findings, found...)
			}
			return errors.Join(err, show(p, c))
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
		case errors.Is(err, io.EOF) && len(seals) == 0:
			return nil, fmt.Errorf("%s has no seal: nothing can be compared with it", file)
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
