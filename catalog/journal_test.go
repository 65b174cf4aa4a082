package catalog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// journal is a sound file, of which each case changes a part.
const journal = `unmapped: ignore
ahead: "86400s"
behind: "315360000s"
accounts:
  cash: { type: asset, description: What was paid. }
  revenue: { type: revenue, description: What we earned. }
  tax: { type: liability, description: What is not ours. }
rules:
  billing.invoice.paid:
    lines:
      - { debit: cash, amount: amount, currency: currency }
      - { credit: revenue, amount: [amount, -tax_amount], currency: currency }
      - { credit: tax, amount: tax_amount, currency: currency }
`

// linesOf is the last part of a file, from its first lines on.
func linesOf(file string) string {
	_, lines, _ := strings.Cut(file, "    lines:")
	return "    lines:" + lines
}

// journalIn is a folder of the shipped catalog with a journal of its own, and more messages.
func journalIn(t *testing.T, journal, messages string) string {
	t.Helper()
	return like(t, ".", map[string]string{"journal.yaml": journal, "messages.yaml": text(t, ".", "messages.yaml") + messages})
}

func TestEachMistakeOfTheJournalNamesFileRuleAndReason(t *testing.T) {
	t.Parallel()
	const (
		place  = "journal.yaml: rule billing.invoice.paid: "
		credit = "- { credit: revenue, amount: [amount, -tax_amount], currency: currency }"
		taxes  = "- { credit: tax, amount: tax_amount, currency: currency }"
	)
	for sentence, test := range map[string]struct{ old, replacement, messages, want string }{
		"an entry that does not balance":         {credit, "- { credit: revenue, amount: amount, currency: currency }", "", place + "lines: do not balance in currency: what is debited and credited of tax_amount differs"},
		"a line of the wrong side":               {"- { debit: cash,", "- { credit: cash,", "", place + "lines: do not balance in currency: what is debited and credited of amount differs"},
		"an entry that balances across two":      {taxes, "- { credit: tax, amount: tax_amount, currency: EUR }", "", place + "lines: do not balance in EUR: what is debited and credited of tax_amount differs\n" + place + "lines: do not balance in currency: what is debited and credited of tax_amount differs\n" + place + "lines[2].currency: tax_amount of billing.invoice.paid is an amount of currency, and not of EUR"},
		"an account that the chart has not":      {"{ debit: cash,", "{ debit: bank,", "", place + "lines[0]: the chart has no account bank"},
		"an account twice":                       {"{ credit: tax,", "{ credit: revenue,", "", place + "lines[2]: account revenue stands in two lines of one currency"},
		"a line of both sides":                   {"{ debit: cash,", "{ debit: cash, credit: tax,", "", place + "lines: do not balance in currency: what is debited and credited of amount differs\n" + place + "lines[0]: must have debit or credit, and not both\n" + place + "lines[0]: the chart has no account cashtax"},
		"a line of no side":                      {"{ debit: cash,", "{", "", place + "lines[0]: must have debit or credit, and not both"},
		"one line":                               {credit + "\n      " + taxes + "\n", "\n", "", place + "lines: do not balance in currency: what is debited and credited of amount differs\n" + place + "lines: must be 2 to 50"},
		"an amount that is not declared":         {"amount: tax_amount", "amount: tip", "", place + "lines: do not balance in currency: what is debited and credited of tax_amount, tip differs\n" + place + "lines[2].amount: tip of billing.invoice.paid is not declared"},
		"an amount of another shape":             {"amount: tax_amount", "amount: invoice_id", "", place + "lines: do not balance in currency: what is debited and credited of invoice_id, tax_amount differs\n" + place + "lines[2].amount: invoice_id of billing.invoice.paid is no amount, integer or quantity"},
		"an amount that is no path":              {"amount: tax_amount", "amount: 5", "", place + "lines[2]: must be a path, or a list of paths"},
		"a currency that is not declared":        {"amount: tax_amount, currency: currency", "amount: tax_amount, currency: money", "", place + "lines: do not balance in currency: what is debited and credited of tax_amount differs\n" + place + "lines: do not balance in money: what is debited and credited of tax_amount differs\n" + place + "lines[2].currency: money of billing.invoice.paid is no currency that is declared\n" + place + "lines[2].currency: tax_amount of billing.invoice.paid is an amount of currency, and not of money"},
		"a rule without lines":                   {linesOf(journal), "    lines: []\n", "", place + "lines: must be 2 to 50"},
		"a type of account that is none":         {"type: liability", "type: debt", "", "journal.yaml: account tax: type: must be asset, liability, equity, revenue or expense"},
		"an account without a description":       {", description: What is not ours.", "", "", "journal.yaml: account tax: description: is missing"},
		"an account that looks like points":      {"  tax: {", "  \"points:tax\": {", "", `journal.yaml: account points:tax: an account's id is at most 64 of a-z, 0-9 and _ . -, and begins with a letter` + "\n" + place + "lines[2]: the chart has no account tax"},
		"two rules for one type":                 {"rules:\n", "rules:\n  billing.invoice.paid: { lines: [] }\n", "", "journal.yaml: rule billing.invoice.paid: lines: must be 2 to 50\njournal.yaml: rules.billing.invoice.paid: the key stands here twice"},
		"a rule for a type that nobody declares": {"billing.invoice.paid:", "billing.paid:", "", "journal.yaml: rule billing.paid: no queue has the handler journal.post for it"},
		"a rule for what undoes":                 {"billing.invoice.paid:", "billing.invoice.reverted:", "", "journal.yaml: rule billing.invoice.reverted: no queue has the handler journal.post for it"},
		"a rule that is no pattern":              {"billing.invoice.paid:", "billing..paid:", "", "journal.yaml: rule billing..paid: must be for an event type, or a pattern of them"},
		"a choice that is none":                  {"unmapped: ignore", "unmapped: lose", "", "journal.yaml: unmapped: must be ignore or dead_letter"},
		"no bound on the future":                 {"ahead: \"86400s\"\n", "", "", "journal.yaml: ahead: must be a time that is longer than 0"},
		"a past without an end":                  {"315360000s", "0s", "", "journal.yaml: behind: must be a time that is longer than 0"},
		"no choice":                              {"unmapped: ignore", "", "", "journal.yaml: unmapped: must be ignore or dead_letter"},
		"a key that is unknown":                  {"unmapped: ignore", "unmaped: ignore", "", "journal.yaml: unmaped: unknown key\njournal.yaml: unmapped: must be ignore or dead_letter"},
		"a currency without a minor unit": {
			"rules:\n", "rules:\n  billing.gold.sold:\n    lines: [{ debit: cash, amount: grams, currency: XAU }, { credit: revenue, amount: grams, currency: XAU }]\n",
			"  billing.gold.sold:\n    1: { grams: integer! }\n",
			"journal.yaml: rule billing.gold.sold: lines[0].currency: XAU is no currency with a minor unit, as ISO 4217 has them\njournal.yaml: rule billing.gold.sold: lines[1].currency: XAU is no currency with a minor unit, as ISO 4217 has them",
		},
		"a whole number whose currency may be absent": {
			"rules:\n", "rules:\n  billing.gift.sold:\n    lines: [{ debit: cash, amount: cents, currency: currency }, { credit: revenue, amount: cents, currency: currency }]\n",
			"  billing.gift.sold:\n    1: { cents: integer!, currency: currency }\n",
			"journal.yaml: rule billing.gift.sold: lines[0].currency: currency of billing.gift.sold is not required, and cents does not say its currency itself\njournal.yaml: rule billing.gift.sold: lines[1].currency: currency of billing.gift.sold is not required, and cents does not say its currency itself",
		},
		"amounts that may all be absent": {
			"billing.invoice.paid:", "billing.invoice.voided:", "", "journal.yaml: rule billing.invoice.voided: lines: need no member of *.*.* that is required: there could be nothing to post",
		},
		"two patterns for one type": {
			"billing.invoice.paid:\n", "\"*.invoice.due\":\n    lines: [{ debit: cash, amount: amount, currency: currency }, { credit: tax, amount: amount, currency: currency }]\n  \"*.invoice.*\":\n",
			"  \"*.invoice.*\":\n    1: { amount: amount!, currency: currency!, tax_amount: amount }\n  \"*.invoice.due\":\n    1: { amount: amount! , currency: currency! }\n", "",
		},
		"two patterns of which neither is narrower": {
			"billing.invoice.paid:\n", "\"#.due.#\":\n    lines: []\n  \"#.paid.#\":\n", "", `rule "#.paid.#": holds event types that "#.due.#" holds too, and neither is narrower`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, journal, test.old)
			_, err := catalog.Load(journalIn(t, strings.Replace(journal, test.old, test.replacement, 1), test.messages))
			switch {
			case test.want == "":
				require.NoError(t, err)
			case strings.HasPrefix(test.want, "journal.yaml"):
				requireMistakes(t, err, test.want)
			default: // among others
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestAnEventHasTheNarrowestRule(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(journalIn(t, journal+`  "*.fee.charged":
    lines:
      - { debit: cash, amount: cents, currency: EUR }
      - { credit: revenue, amount: [cents], currency: EUR }
  card.fee.charged:
    lines:
      - { debit: cash, amount: fee, currency: currency }
      - { credit: tax, amount: fee, currency: currency }
`, `  "*.fee.charged":
    1: { cents: integer! }
  card.fee.charged:
    1: { fee: amount!, currency: currency! }
    2: { fee: amount!, currency: currency!, card: id }
`))
	require.NoError(t, err)
	for eventType, want := range map[string]string{"card.fee.charged": "tax", "bank.fee.charged": "revenue", "billing.invoice.paid": "revenue", "billing.invoice.sent": ""} {
		rule, ok := c.Journal.Rule(eventType)
		require.Equal(t, want != "", ok, eventType)
		if ok {
			require.Equal(t, want, rule.Lines[1].Account(), eventType)
		}
	}
	rule, _ := c.Journal.Rule("bank.fee.charged")
	require.Equal(t, catalog.Rule{Name: "*.fee.charged", Lines: []catalog.RuleLine{
		{Debit: "cash", Amount: catalog.Terms{"cents"}, Currency: "EUR"}, {Credit: "revenue", Amount: catalog.Terms{"cents"}, Currency: "EUR"},
	}}, rule)
}

// The waits of what undoes another event last longer than an hour, and are the broker's own.
func TestWhatUndoesAnEventWaitsAnHourForIt(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	q, ok := c.Queue("fis-ingestion")
	require.True(t, ok)
	h, ok := q.Handler("billing.invoice.reverted")
	require.True(t, ok)
	require.Equal(t, catalog.JournalRevert, h.Name)
	var waits time.Duration
	for failed := 1; failed < h.MaxAttempts; failed++ {
		waits += h.Backoff.Wait(failed, 0)
	}
	require.Greater(t, waits, time.Hour)
	require.Less(t, waits, 75*time.Minute)
	require.True(t, q.BrokerKeepsTime())
}
