package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

const invoice = `{"invoice_id":"i1","amount":"119.00","currency":"EUR","tax_amount":"19.00"}`

// desk is the journal over a real store.
type desk struct {
	*journaltest.Bench
	periods  *journal.Periods
	reverter *journal.Reverter
	counter  *storetest.Counter
	faults   *storetest.Faults
	clock    atomic.Int64
}

// open opens a journal of the shipped catalog, or of a folder.
func open(t *testing.T, folder string) *desk {
	t.Helper()
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	db := storetest.Open(t)
	d := &desk{counter: &storetest.Counter{Store: db}}
	d.faults = &storetest.Faults{Store: d.counter}
	d.clock.Store(noon.UnixNano())
	now := func() time.Time { return time.Unix(0, d.clock.Load()).UTC() }
	d.Bench = journaltest.NewBench(c, d.faults, now)
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id-", ids.Add(1)) }
	d.periods = &journal.Periods{Store: d.faults, Now: now, NewID: newID}
	d.reverter = &journal.Reverter{Store: d.faults, Catalog: c, Now: now, NewID: newID}
	return d
}

func (d *desk) pass(by time.Duration) { d.clock.Add(int64(by)) }

// deliver delivers an event of acme, made at noon, and returns the reason of its error.
func (d *desk) deliver(t *testing.T, id, eventType, data string) (run *dedupe.Run, reason string) {
	t.Helper()
	_, run, err := d.Deliver(t.Context(), "acme", journaltest.Message(t, d.Catalog, id, eventType, noon, data), false)
	if err != nil {
		return run, retry.Decide(err).Reason
	}
	return run, ""
}

func (d *desk) entry(t *testing.T, id string) ledger.Entry {
	t.Helper()
	doc, err := d.Store.Get(t.Context(), ledger.Key(id))
	require.NoError(t, err)
	entry, err := ledger.Read(doc)
	require.NoError(t, err)
	return entry
}

// more is a folder of the shipped catalog with more rules, and the messages that they need.
func more(t *testing.T, unmapped string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../../catalog")))
	for name, text := range map[string]string{
		"journal.yaml": `  card.fee.charged:
    lines:
      - { debit: salaries, amount: cents, currency: EUR }
      - { credit: cash, amount: cents, currency: EUR }
  "*.refund.sent":
    lines:
      - { debit: cash, amount: amount, currency: currency }
      - { debit: salaries, amount: fee, currency: USD }
      - { credit: receivables, amount: amount, currency: currency }
      - { credit: tax-payable, amount: fee, currency: USD }
`,
		"messages.yaml": `  card.fee.charged:
    1: { cents: integer! }
  "*.refund.sent":
    1: { amount: amount!, currency: currency!, fee: integer }
`,
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(data, text...), 0o600))
	}
	data, err := os.ReadFile(filepath.Join(dir, "journal.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal.yaml"), []byte(replaced(t, string(data), "unmapped: ignore", "unmapped: "+unmapped)), 0o600))
	return dir
}

func TestTheRuleOfAnEventTypeMakesTheLinesOfItsEntry(t *testing.T) {
	t.Parallel()
	d := open(t, more(t, "dead_letter"))
	ids := 0
	line := func(account, currency string, debit, credit int64) ledger.Line {
		return ledger.Line{Account: account, Currency: currency, Debit: debit, Credit: credit}
	}
	for sentence, test := range map[string]struct {
		eventType, data string
		want            []ledger.Line
		result, reason  string
		period          string
	}{
		"an invoice with tax": {eventType: "billing.invoice.paid", data: invoice, want: []ledger.Line{
			line("cash", "EUR", 11900, 0), line("subscription-revenue", "EUR", 0, 10000), line("tax-payable", "EUR", 0, 1900),
		}},
		"without tax it has no line of nothing": {eventType: "billing.invoice.paid", data: `{"invoice_id":"i1","amount":"5.00","currency":"EUR"}`, want: []ledger.Line{
			line("cash", "EUR", 500, 0), line("subscription-revenue", "EUR", 0, 500),
		}},
		"a currency without digits": {eventType: "payroll.salary.disbursed", data: `{"payment_run_id":"p1","amount":"5","currency":"JPY"}`, want: []ledger.Line{
			line("salaries", "JPY", 5, 0), line("cash", "JPY", 0, 5),
		}},
		"a currency with three": {eventType: "payroll.salary.disbursed", data: `{"payment_run_id":"p1","amount":"5.000","currency":"KWD"}`, want: []ledger.Line{
			line("salaries", "KWD", 5000, 0), line("cash", "KWD", 0, 5000),
		}},
		"two currencies, each for itself": {eventType: "bank.refund.sent", data: `{"amount":"5.00","currency":"EUR","fee":7}`, want: []ledger.Line{
			line("cash", "EUR", 500, 0), line("salaries", "USD", 7, 0), line("receivables", "EUR", 0, 500), line("tax-payable", "USD", 0, 7),
		}},
		"minor units of the rule's currency": {
			eventType: "card.fee.charged", data: `{"cents":30}`, want: []ledger.Line{line("salaries", "EUR", 30, 0), line("cash", "EUR", 0, 30)},
		},
		"an invoice of nothing":                 {eventType: "billing.invoice.paid", data: `{"invoice_id":"i1","amount":"0.00","currency":"EUR"}`, result: journal.NothingToPost},
		"more tax than there is":                {eventType: "billing.invoice.paid", data: `{"invoice_id":"i1","amount":"1.00","currency":"EUR","tax_amount":"2.00"}`, reason: "amount_negative"},
		"a charge below nothing":                {eventType: "card.fee.charged", data: `{"cents":-1}`, reason: "amount_negative"},
		"more than a line may move":             {eventType: "card.fee.charged", data: `{"cents":1000000000000001}`, reason: "amount_too_large"},
		"an event that no rule takes":           {eventType: "billing.invoice.sent", data: `{"invoice_id":"i1"}`, reason: "unmapped"},
		"a declaration that is half the rule's": {eventType: "notification.refund.sent", data: `{"user_id":"u1"}`, reason: "rule_unfit"},
	} {
		ids++
		id := fmt.Sprint("e-", ids)
		run, reason := d.deliver(t, id, test.eventType, test.data)
		require.Equal(t, test.reason, reason, sentence)
		if test.want == nil {
			require.Equal(t, test.result, run.Result(), sentence)
			continue
		}
		require.Equal(t, journal.Posted, run.Result(), sentence)
		entry := d.entry(t, run.Ref())
		require.Equal(t, test.want, entry.Lines, sentence)
		if test.period == "" {
			test.period = "2026-11"
		}
		require.Equal(t, test.period, entry.Period, sentence)
		require.Equal(t, []string{"acme", id, test.eventType}, []string{entry.Tenant, entry.EventID, entry.EventType}, sentence)
	}
	ignoring := open(t, "")
	run, reason := ignoring.deliver(t, "e1", "billing.invoice.sent", `{"invoice_id":"i1"}`)
	require.Equal(t, []string{"", journal.Unmapped, ""}, []string{reason, run.Result(), run.Ref()}, "it is ignored where the catalog says so")
}

// Posting is one round trip, and two documents: the record and the entry. What others are told is
// two more, as of any emission.
func TestPostingIsOneCommitAndReadsNothing(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	d.deliver(t, "e0", "billing.invoice.paid", invoice) // an instance's first asks for the periods
	for _, test := range []struct {                     // in this order: the second has another catalog from then on
		sentence  string
		emits     bool
		documents int64
	}{
		{"with what others are told", true, 4},
		{"alone", false, 2},
	} {
		if !test.emits {
			quiet := *d.Catalog
			quiet.Queues = nil
			d.Bench = journaltest.NewBench(&quiet, d.faults, d.Now)
			d.deliver(t, "e0-quiet", "billing.invoice.paid", invoice)
		}
		d.counter.Gets.Store(0)
		d.counter.Queries.Store(0)
		d.counter.Commits.Store(0)
		d.counter.Written.Store(0)
		run, reason := d.deliver(t, "e1-"+fmt.Sprint(test.emits), "billing.invoice.paid", invoice)
		require.Empty(t, reason)
		require.Equal(t, journal.Posted, run.Result())
		require.Zero(t, d.counter.Gets.Load()+d.counter.Queries.Load(), test.sentence)
		require.EqualValues(t, 1, d.counter.Commits.Load(), test.sentence)
		require.Equal(t, test.documents, d.counter.Written.Load(), test.sentence)
	}
}

func TestAnEntryAndItsReversalArePublishedInOrder(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	var sent []contract.Message
	relay := &lane.Relay{Of: lane.Outbox, Store: d.faults, Now: d.Now, AtOnce: 1, Publisher: publisher(func(topic string, m contract.Message) {
		require.Equal(t, "fis-domain-events", topic)
		sent = append(sent, m)
	})}
	d.deliver(t, "e1", "billing.invoice.paid", invoice)
	d.pass(time.Microsecond) // messages of one moment have no order
	d.deliver(t, "undo", "billing.invoice.reverted", `{"reverts":"e1"}`)
	d.pass(time.Hour)
	_, err := relay.Due(t.Context(), 10, func(_ string, err error) { require.NoError(t, err) })
	require.NoError(t, err)
	require.Len(t, sent, 2)
	for i, want := range []string{
		`"type":"fis.journal.posted"`, `"type":"fis.journal.reverted"`,
	} {
		require.Equal(t, "e1", sent[i].OrderingKey)
		require.Equal(t, "acme", sent[i].Attributes[contract.AttrTenant])
		require.Contains(t, string(sent[i].Data), want)
	}
	require.Contains(t, string(sent[0].Data), `"data":{"event_id":"e1","event_type":"billing.invoice.paid","period":"2026-11","lines":[{"account":"cash","currency":"EUR","debit":"119.00"},{"account":"subscription-revenue","currency":"EUR","credit":"100.00"},{"account":"tax-payable","currency":"EUR","credit":"19.00"}]}`)
	require.Contains(t, string(sent[1].Data), `"data":{"event_id":"undo","event_type":"billing.invoice.reverted","reverts":"e1","period":"2026-11","lines":[{"account":"cash","currency":"EUR","credit":"119.00"},`)
}

func TestAReversalEventReversesTheEntryOfAnotherOnce(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	const undo = "billing.invoice.reverted"
	_, reason := d.deliver(t, "early", undo, `{"reverts":"e1"}`)
	require.Equal(t, "original_missing", reason, "it waits for the event that it undoes")
	posted, _ := d.deliver(t, "e1", "billing.invoice.paid", invoice)
	d.deliver(t, "free", "billing.invoice.paid", `{"invoice_id":"i1","amount":"0.00","currency":"EUR"}`)

	run, reason := d.deliver(t, "undo", undo, `{"reverts":"e1"}`)
	require.Empty(t, reason)
	require.Equal(t, journal.Reverted, run.Result())
	require.Equal(t, ledger.ReversalID(posted.Ref()), run.Ref())
	again, _ := d.deliver(t, "again", undo, `{"reverts":"e1"}`)
	require.Equal(t, []string{journal.RevertedBefore, run.Ref()}, []string{again.Result(), again.Ref()})
	require.Equal(t, "undo", d.entry(t, run.Ref()).EventID, "the first has made it")

	for reverts, want := range map[string]string{"undo": "irreversible", "again": "irreversible", "free": "original_without_entry"} {
		_, reason := d.deliver(t, "of-"+reverts, undo, fmt.Sprintf(`{"reverts":%q}`, reverts))
		require.Equal(t, want, reason, reverts)
	}
}

func TestAPersonReversesAnEntryOnce(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	var lanes []string
	d.reverter.Committed = func(_ context.Context, ids []string) { lanes = ids }
	ada := journal.Change{Who: ada.Who, Why: "typed in twice"}
	posted, _ := d.deliver(t, "e1", "billing.invoice.paid", invoice)
	_, err := d.reverter.Revert(t.Context(), "globex", "e1", ada)
	require.ErrorIs(t, err, journal.ErrUnknown)
	_, err = d.reverter.Revert(t.Context(), "globex", posted.Ref(), ada)
	require.ErrorIs(t, err, journal.ErrUnknown, "it is another tenant's")
	_, err = d.reverter.Revert(t.Context(), "acme", "e1", journal.Change{Who: ada.Who})
	require.ErrorIs(t, err, audit.ErrInvalid)
	_, err = d.reverter.Revert(t.Context(), "acme", "e/1~", ada)
	require.ErrorIs(t, err, journal.ErrUnknown)

	d.counter.Commits.Store(0)
	reversal, err := d.reverter.Revert(t.Context(), "acme", "e1", ada)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.counter.Commits.Load())
	require.Len(t, lanes, 1, "what others are told can go out")
	require.Equal(t, "2026-11", reversal.Period)
	require.Equal(t, d.entry(t, reversal.ID).Lines, reversal.Lines)
	entries, err := audit.Subject{Kind: journal.KindEntry, Tenant: "acme", ID: posted.Ref()}.All(t.Context(), d.Store)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []string{"ada", "typed in twice", "revert"}, []string{entries[0].Who, entries[0].Why, entries[0].Action})

	for _, entry := range []string{"e1", posted.Ref()} {
		before, err := d.reverter.Revert(t.Context(), "acme", entry, ada)
		require.ErrorIs(t, err, journal.ErrReverted)
		require.Equal(t, reversal.EventID, before.EventID, "the one that stands")
	}
	_, err = d.reverter.Revert(t.Context(), "acme", reversal.ID, ada)
	require.ErrorIs(t, err, journal.ErrReversal)
}

type publisher func(topic string, m contract.Message)

func (p publisher) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	p(topic, m)
	return "m1", nil
}

func replaced(t *testing.T, text, old, replacement string) string {
	t.Helper()
	require.Contains(t, text, old)
	return strings.Replace(text, old, replacement, 1)
}
