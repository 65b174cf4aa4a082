package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
)

// Whatever the amounts are: two random draws of large amounts never agree by accident.
func TestARuleIsTakenExactlyWhereItBalancesForAnyAmounts(t *testing.T) {
	t.Parallel()
	chart := map[string]Account{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}
	rapid.Check(t, func(t *rapid.T) {
		var rule Rule
		accounts := []string{"a", "b", "c", "d", "e"}
		terms := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "-x", "y", "-y", "z", "-z"}), 1, 3)
		for i := range rapid.IntRange(2, 5).Draw(t, "lines") {
			line := RuleLine{Amount: terms.Draw(t, "amount"), Currency: rapid.SampledFrom([]string{"currency", "EUR"}).Draw(t, "currency")}
			if rapid.Bool().Draw(t, "debit") {
				line.Debit = accounts[i]
			} else {
				line.Credit = accounts[i]
			}
			rule.Lines = append(rule.Lines, line)
		}
		if rapid.Bool().Draw(t, "balance it") { // each line with its opposite
			n := len(rule.Lines) / 2
			for i, line := range rule.Lines[:n] {
				opposite := RuleLine{Amount: line.Amount, Currency: line.Currency}
				if line.Debit != "" {
					opposite.Credit = accounts[n+i]
				} else {
					opposite.Debit = accounts[n+i]
				}
				rule.Lines[n+i] = opposite
			}
			rule.Lines = rule.Lines[:2*n]
		}
		balances := true
		for _, amounts := range []map[string]int64{{"x": 1_000_003, "y": 20_000_033, "z": 303_000_017}, {"x": 7_000_001, "y": 11, "z": 13_000_027}} {
			left := map[string]int64{}
			for _, line := range rule.Lines {
				for _, term := range line.Amount {
					member, minus := Term(term)
					amount := amounts[member]
					if minus != (line.Credit != "") {
						amount = -amount
					}
					left[line.Currency] += amount
				}
			}
			for _, sum := range left {
				balances = balances && sum == 0
			}
		}
		r := newReader()
		r.checkRule("rule", rule, chart)
		require.Equal(t, balances, len(r.mistakes) == 0, "%v: %v", rule, r.mistakes)
	})
}

// FuzzJournal: whatever the file says, it is read the same twice, and a rule that is taken has lines.
func FuzzJournal(f *testing.F) {
	shipped := filetest.Must(embedded.ReadFile(journalFile))(f)
	f.Add(shipped)
	f.Add([]byte("unmapped: ignore\naccounts: {a: {type: asset, description: x}}\nrules: {a.b.c: {lines: [{debit: a, amount: [[], {}], currency: 3}]}}"))
	f.Add([]byte("rules: {\"#\": {lines: [{}, {}]}, \"*.*.*\": []}"))
	base := filetest.Must(load(embedded))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func() (*Catalog, *reader) {
			c, r := *base, newReader()
			node, err := document(data)
			if err != nil {
				return nil, r
			}
			c.readJournal(r, r.entries(node, journalFile, ""))
			return &c, r
		}
		c, r := read()
		_, again := read()
		require.Len(t, again.mistakes, len(r.mistakes))
		if c == nil || len(r.mistakes) > 0 {
			return
		}
		for _, rule := range c.Journal.Rules {
			require.GreaterOrEqual(t, len(rule.Lines), 2)
			for _, line := range rule.Lines {
				require.Contains(t, c.Journal.Chart, line.Account())
				require.NotEmpty(t, line.Amount)
			}
		}
	})
}
