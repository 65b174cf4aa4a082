package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
)

func FuzzLoad(f *testing.F) {
	for _, dir := range []string{".", filepath.Join("testdata", "crooked"), filepath.Join("testdata", "wrong")} {
		var files [5][]byte
		for i, name := range []string{queuesFile, productsFile, sourcesFile, topicsFile, targetsFile} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			require.True(f, err == nil || name == topicsFile || name == targetsFile, err)
			files[i] = data
		}
		f.Add(files[0], files[1], files[2], files[3], files[4], []byte("{}"))
		for _, provider := range []string{"paynow", "stripe"} {
			f.Add(files[0], files[1], files[2], files[3], files[4],
				[]byte(filetest.Read(f, "providers", provider+".yaml")))
		}
	}
	f.Add([]byte("queues: &a [*a]"), []byte("? {}\n: []"), []byte("sources: {<<: {}}"), []byte("topics: 3"),
		[]byte("targets: {a: []}"), []byte("mappings: {a: {b: call}}"))
	f.Add([]byte("queues: [{id: [], handlers: {a: {post: {target: []}, retry_policy: {schedule: []}}}}, []]"),
		[]byte("---\n---\n"), []byte("!!x"), []byte(""), []byte("targets: {}"),
		[]byte("signature: {signs: '{'}\nid: [a]"))
	f.Fuzz(func(t *testing.T, queues, products, sources, topics, targets, provider []byte) {
		files := fstest.MapFS{
			queuesFile: {Data: queues}, productsFile: {Data: products}, sourcesFile: {Data: sources},
			topicsFile: {Data: topics}, targetsFile: {Data: targets},
			"providers/own.yaml": {Data: provider},
		}
		c, err := load(files)
		if err != nil {
			require.NotEmpty(t, err.Error())
			_, repeated := load(files)
			require.EqualError(t, repeated, err.Error(), "a second load reports the same mistakes in the same order")
			return
		}
		taken := map[string]bool{}
		for _, q := range c.Queues {
			require.False(t, taken[q.ID] || taken[q.DeadLetter.Topic], "each name is used once")
			taken[q.ID] = true
			if !q.DeadLetter.Drop {
				taken[q.DeadLetter.Topic] = true
				require.LessOrEqual(t, len(q.DeadLetterHold()), 255)
			}
			require.LessOrEqual(t, len(q.PushSubscription()), 255)
			require.LessOrEqual(t, len(q.Filter().String()), 256)
			require.Less(t, q.HandlerTimeout, q.AckDeadline)
			require.LessOrEqual(t, q.AckDeadline, q.Lease)
			if q.Remembers() {
				require.GreaterOrEqual(t, q.RememberFor, q.MessageRetention)
				require.GreaterOrEqual(t, q.RememberFor, 72*time.Hour)
			} else {
				require.True(t, q.DeadLetter.Drop && q.MaxAttempts == 1)
			}
			minimum, maximum := q.BrokerBackoff()
			require.True(t, 0 <= minimum && minimum <= maximum && maximum <= 600*time.Second)
			for _, h := range q.Handlers {
				for _, id := range h.Emits {
					at := slices.IndexFunc(c.Queues, func(other Queue) bool { return other.ID == id })
					require.True(t, at < 0 || c.Queues[at].Enabled || !q.Enabled, "an emission has a consumer")
					require.True(t, at >= 0 || !q.Enabled || slices.Contains(c.OtherTopics(), id),
						"an emission has a consumer")
				}
				require.Less(t, h.Timeout, q.AckDeadline)
				require.LessOrEqual(t, h.MaxAttempts, BrokerMaxDeliveryAttempts)
				for attempt := range h.MaxAttempts {
					require.GreaterOrEqual(t, h.Backoff.Wait(attempt+1, 0.5), time.Duration(0))
				}
			}
		}
		printed := filetest.Must(c.JSON())(t)
		require.True(t, json.Valid(printed))
	})
}

// Two random draws of large amounts never agree by accident, so they stand for all amounts.
func TestARuleIsAcceptedExactlyIfItBalancesForAllAmounts(t *testing.T) {
	t.Parallel()
	chart := map[string]Account{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}
	rapid.Check(t, func(t *rapid.T) {
		var rule Rule
		accounts := []string{"a", "b", "c", "d", "e"}
		add := func(i int, debit bool, amount Terms, currency string) {
			line := RuleLine{Credit: accounts[i], Amount: amount, Currency: currency}
			if debit {
				line.Debit, line.Credit = line.Credit, ""
			}
			rule.Lines = append(rule.Lines, line)
		}
		terms := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "-x", "y", "-y", "z", "-z"}), 1, 3)
		for i := range rapid.IntRange(2, 5).Draw(t, "lines") {
			add(i, rapid.Bool().Draw(t, "debit"), terms.Draw(t, "amount"),
				rapid.SampledFrom([]string{"currency", "EUR"}).Draw(t, "currency"))
		}
		if rapid.Bool().Draw(t, "balance it") { // each line with its opposite
			rule.Lines = rule.Lines[:len(rule.Lines)/2]
			for _, line := range rule.Lines {
				add(len(rule.Lines), line.Debit == "", line.Amount, line.Currency)
			}
		}
		balances := true
		for _, amounts := range []map[string]int64{
			{"x": 1_000_003, "y": 20_000_033, "z": 303_000_017}, {"x": 7_000_001, "y": 11, "z": 13_000_027},
		} {
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

// FuzzJournal: any file is read the same twice, and an accepted rule has lines.
func FuzzJournal(f *testing.F) {
	shipped := filetest.Must(embedded.ReadFile(journalFile))(f)
	f.Add(shipped)
	f.Add([]byte("unmapped: ignore\naccounts: {a: {type: asset, description: x}}\nrules: {a.b.c: {lines: " +
		"[{debit: a, amount: [[], {}], currency: 3}]}}"))
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
