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

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

const invoice = `{"invoice_id":"i1","amount":"119.00","currency":"EUR","tax_amount":"19.00"}`

type office struct {
	*journaltest.Bench
	periods  *journal.Periods
	reverter *journal.Reverter
	counter  *storetest.Counter
	faults   *storetest.Faults
	clock    atomic.Int64
}

func open(t *testing.T, folder string) *office {
	t.Helper()
	c := filetest.Must(catalog.Load(folder))(t)
	db := storetest.Open(t)
	d := &office{counter: &storetest.Counter{Store: db}}
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

func (d *office) pass(by time.Duration) { d.clock.Add(int64(by)) }

func (d *office) deliver(t *testing.T, id, eventType, data string) (run *dedupe.Run, reason string) {
	t.Helper()
	_, run, err := d.Deliver(t.Context(), "acme", journaltest.Message(t, d.Catalog, id, eventType, noon,
		data), false)
	if err != nil {
		return run, retry.Decide(err).Reason
	}
	return run, ""
}

func (d *office) entry(t *testing.T, id string) ledger.Entry {
	t.Helper()
	return filetest.Must(ledger.Read(storetest.Get(t, d.Store, ledger.Key(id))))(t)
}

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
		text = strings.Replace(filetest.Read(t, dir, name), "unmapped: ignore", "unmapped: "+unmapped, 1) + text
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const (
	paidType   = "billing.invoice.paid"
	salaryType = "payroll.salary.disbursed"
	feeType    = "card.fee.charged"
)

// postings are events, and the entries that the rules make of them. want has the lines: the account, and what
// is debited, or credited below 0.
var postings = map[string]struct{ eventType, data, want, result, reason string }{
	"an invoice with tax": {
		paidType, invoice, "cash 11900 EUR, subscription-revenue -10000 EUR, tax-payable -1900 EUR", "", "",
	},
	"an invoice without tax has no line of 0": {
		paidType, `{"invoice_id":"i1","amount":"5.00","currency":"EUR"}`,
		"cash 500 EUR, subscription-revenue -500 EUR", "", "",
	},
	"a currency without decimal places": {
		salaryType, `{"payment_run_id":"p1","amount":"5","currency":"JPY"}`, "salaries 5 JPY, cash -5 JPY", "", "",
	},
	"a currency with three decimal places": {
		salaryType, `{"payment_run_id":"p1","amount":"5.000","currency":"KWD"}`,
		"salaries 5000 KWD, cash -5000 KWD", "", "",
	},
	"two currencies, which balance separately": {
		"bank.refund.sent", `{"amount":"5.00","currency":"EUR","fee":7}`,
		"cash 500 EUR, salaries 7 USD, receivables -500 EUR, tax-payable -7 USD", "", "",
	},
	"minor units of the rule's currency": {
		feeType, `{"cents":30}`, "salaries 30 EUR, cash -30 EUR", "", "",
	},
	"an invoice of 0": {
		paidType, `{"invoice_id":"i1","amount":"0.00","currency":"EUR"}`, "", journal.NothingToPost, "",
	},
	"more tax than the amount": {
		paidType, `{"invoice_id":"i1","amount":"1.00","currency":"EUR","tax_amount":"2.00"}`, "", "",
		"amount_negative",
	},
	"the largest amount of a line": {
		feeType, `{"cents":1000000000000000}`, "salaries 1000000000000000 EUR, cash -1000000000000000 EUR", "", "",
	},
	"the largest amount, but negative": {feeType, `{"cents":-1000000000000000}`, "", "", "amount_negative"},
	"more than the largest amount, and negative": {
		feeType, `{"cents":-1000000000000001}`, "", "", "amount_too_large",
	},
	"a negative charge": {feeType, `{"cents":-1}`, "", "", "amount_negative"},
	"more than the largest amount of a line": {
		feeType, `{"cents":1000000000000001}`, "", "", "amount_too_large",
	},
	"an event type without a rule": {"billing.invoice.sent", `{"invoice_id":"i1"}`, "", "", "unmapped"},
	"an event type without the members that its rule reads": {
		"notification.refund.sent", `{"user_id":"u1"}`, "", "", "rule_unfit",
	},
}

func TestTheRuleOfAnEventTypeMakesTheLinesOfItsEntry(t *testing.T) {
	t.Parallel()
	d := open(t, more(t, "dead_letter"))
	ids := 0
	for sentence, test := range postings {
		ids++
		id := fmt.Sprint("e-", ids)
		run, reason := d.deliver(t, id, test.eventType, test.data)
		require.Equal(t, test.reason, reason, sentence)
		if test.want == "" {
			require.Equal(t, test.result, run.Record.Result, sentence)
			continue
		}
		require.Equal(t, journal.Posted, run.Record.Result, sentence)
		entry := d.entry(t, run.Record.Ref)
		lines := filetest.Map(entry.Lines, func(of ledger.Line) string {
			return fmt.Sprintf("%s %d %s", of.Account, of.Debit-of.Credit, of.Currency)
		})
		require.Equal(t, test.want, strings.Join(lines, ", "), sentence)
		require.Equal(t, []string{"acme", id, test.eventType, "2026-11"},
			[]string{entry.Tenant, entry.EventID, entry.EventType, entry.Period}, sentence)
	}
	ignoring := open(t, "")
	run, reason := ignoring.deliver(t, "e1", "billing.invoice.sent", `{"invoice_id":"i1"}`)
	require.Equal(t, []string{"", journal.Unmapped, ""}, []string{reason, run.Record.Result, run.Record.Ref},
		"the catalog may have events without a rule ignored")
}

func TestAnEntryAndItsReversalArePublishedInOrder(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	var sent []contract.Message
	relay := &lane.Relay{
		Of: lane.Outbox, Store: d.faults, Now: d.Now, AtOnce: 1,
		Publisher: publisher(func(topic string, m contract.Message) {
			require.Equal(t, "fis-domain-events", topic)
			sent = append(sent, m)
		}),
	}
	d.deliver(t, "e1", "billing.invoice.paid", invoice)
	d.pass(time.Microsecond) // messages of one moment have no order
	d.deliver(t, "undo", "billing.invoice.reverted", `{"reverts":"e1"}`)
	d.pass(time.Hour)
	require.NoError(t, filetest.ErrorOf(relay.Due(t.Context(), 10, func(_ string, err error) {
		require.NoError(t, err)
	})))
	require.Len(t, sent, 2)
	for i, want := range []string{`"type":"fis.journal.posted"`, `"type":"fis.journal.reverted"`} {
		require.Equal(t, "e1", sent[i].OrderingKey)
		require.Equal(t, "acme", sent[i].Attributes[contract.AttrTenant])
		require.Contains(t, string(sent[i].Data), want)
	}
	require.Contains(t, string(sent[0].Data),
		`"data":{"event_id":"e1","event_type":"billing.invoice.paid","period":"2026-11",`+
			`"lines":[{"account":"cash","currency":"EUR","debit":"119.00"},{"account":"subscription-revenue",`+
			`"currency":"EUR","credit":"100.00"},{"account":"tax-payable","currency":"EUR","credit":"19.00"}]}`)
	require.Contains(t, string(sent[1].Data),
		`"data":{"event_id":"undo","event_type":"billing.invoice.reverted","reverts":"e1","period":"2026-11",`+
			`"lines":[{"account":"cash","currency":"EUR","credit":"119.00"},`)
}

func TestAPersonReversesAnEntryOnce(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	var lanes []string
	d.reverter.Committed = func(_ context.Context, ids []string) { lanes = ids }
	ada := audit.Change{Who: ada.Who, Why: "typed in twice"}
	posted, _ := d.deliver(t, "e1", "billing.invoice.paid", invoice)
	for sentence, test := range map[string]struct {
		tenant, entry string
		by            audit.Change
		want          error
	}{
		"an event of another tenant":             {"globex", "e1", ada, journal.ErrUnknown},
		"an entry of another tenant":             {"globex", posted.Record.Ref, ada, journal.ErrUnknown},
		"an invalid id":                          {"acme", "e/1~", ada, journal.ErrUnknown},
		"a beginning of an id that is too short": {"acme", posted.Record.Ref[:8], ada, journal.ErrUnknown},
	} {
		_, err := d.reverter.Revert(t.Context(), test.tenant, test.entry, test.by)
		require.ErrorIs(t, err, test.want, sentence)
	}

	d.counter.Commits.Store(0)
	reversal := filetest.Must(d.reverter.Revert(t.Context(), "acme", "e1", ada))(t)
	require.EqualValues(t, 1, d.counter.Commits.Load())
	require.Len(t, lanes, 1, "the lane of the emitted event is published at once")
	require.Equal(t, "2026-11", reversal.Period)
	require.Equal(t, d.entry(t, reversal.ID).Lines, reversal.Lines)
	for _, entry := range []string{"e1", posted.Record.Ref} {
		before, err := d.reverter.Revert(t.Context(), "acme", entry, ada)
		require.ErrorIs(t, err, journal.ErrReverted)
		require.Equal(t, reversal.EventID, before.EventID, "the reversal that exists")
	}
	_, err := d.reverter.Revert(t.Context(), "acme", reversal.ID, ada)
	require.ErrorIs(t, err, journal.ErrReversal)
}

type publisher func(topic string, m contract.Message)

func (p publisher) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	p(topic, m)
	return "m1", nil
}

// origins reads the records of the office's queue, and of those that the catalog has.
func (d *office) origins() journal.Origins {
	known := *d.Catalog
	known.Queues = append([]catalog.Queue{{ID: journaltest.Queue, Handlers: map[string]catalog.Handler{
		"*.*.*": {Name: catalog.JournalPost}, "*.*.reverted": {Name: catalog.JournalRevert},
	}}}, known.Queues...)
	return journal.Origins{Catalog: &known, Store: d.Store}
}

func (d *office) vouched(t *testing.T, writes ...store.Write) bool {
	t.Helper()
	entry := filetest.Must(ledger.Read(sealtest.Document(writes[0])))(t)
	return filetest.Must(d.origins().Vouched(t.Context(), entry))(t)
}

func credited(t *testing.T, order string) []store.Write {
	t.Helper()
	return ledgertest.Credited(t, ledger.Move{
		Tenant: "default", Order: order, EventID: "e-" + order, To: ledger.CustomerPoints("c1"), Amount: 10,
		CreatedAt: noon,
	})
}

// postAll posts entries of each kind by the code that posts them: by events, by people, and by payments.
func (d *office) postAll(t *testing.T) {
	t.Helper()
	for event, data := range map[string]string{"e1": invoice, "e2": invoice, "e3": invoice, "unmapped": ""} {
		eventType := "billing.invoice.paid"
		if data == "" {
			eventType, data = "billing.nothing.known", "{}"
		}
		_, reason := d.deliver(t, event, eventType, data)
		require.Empty(t, reason)
	}
	_, reason := d.deliver(t, "r2", "billing.invoice.reverted", `{"reverts":"e2"}`)
	require.Empty(t, reason)
	require.NoError(t, filetest.ErrorOf(d.reverter.Revert(t.Context(), "acme", "e3", ada)))
	queue, _ := d.Catalog.HandledBy("points.credit")
	for _, order := range []string{"o1", "o2"} {
		writes := credited(t, order)
		storetest.Put(t, d.Store, append(writes, sealtest.Record(t, queue.ID, writes[0]))...)
	}
	operator := &customers.Operator{Store: d.Store, Now: d.Now, NewID: func() string { return "op-1" }}
	link := customers.LinkCustomer{UID: "auth0|u1", Edit: console.Edit{Change: console.Change{Why: "request"}}}
	link.Tenant, link.ID = "default", "c1"
	require.NoError(t, filetest.ErrorOf(operator.Link(t.Context(),
		audit.Author{Proof: audit.Identity, Name: "ada"}, link)))
}

// Entries that were written to the store by other means are not sealed, do not delay others, and are named.
func TestAnEntryIsSealedOnlyWithTheRecordOfItsEventOrTheAuditOfItsAuthor(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	d.postAll(t)
	posted := storetest.All(t, d.Store, ledger.Entries)
	require.Len(t, posted, 3+2+2+4)
	for _, doc := range posted {
		require.True(t, d.vouched(t, store.Set(doc.Key, doc.Fields)), doc.Key)
	}

	writes := credited(t, "o9")
	credit, err := ledger.MoveFromDocument(store.Document{Key: writes[0].Key, Fields: writes[0].Fields})
	require.NoError(t, err)
	chain := ledger.Chain{Entries: []ledger.Move{credit}}
	reversal := filetest.Must(chain.Reverse("", "link-op-1", 10, noon))(t)
	moved, _, err := ledger.Transfer([]ledger.Chain{chain}, ledger.UserPoints("u2"), "link-op-1", noon)
	require.NoError(t, err)
	storetest.Put(t, d.Store, reversal[0])
	require.False(t, d.vouched(t, moved[1]))
	storetest.Put(t, d.Store, store.Delete(reversal[0].Key, 0))

	require.NoError(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)))
	d.pass(journal.Notice + seal.SealedWithin + time.Minute)
	for sentence, e := range map[string]ledger.Entry{
		"of an unknown event":           {Kind: ledger.KindJournal, EventID: "invented", Period: "2026-11"},
		"in a closed month, back-dated": {Kind: ledger.KindJournal, EventID: "dated", Period: october},
		"of an event without an entry":  {Kind: ledger.KindJournal, EventID: "unmapped", Period: "2026-11"},
		"a reversal by an unknown event": {
			Kind: ledger.KindJournalReversal, EventID: "r9", Period: "2026-11", Reverts: ledger.EntryID("acme", "e1"),
		},
		"of another tenant's event": {Kind: ledger.KindJournal, EventID: "e-o1", Period: "2026-11"},
	} {
		e.Tenant, e.OccurredAt, e.PostedAt = "acme", noon, noon
		e.Lines = []ledger.Line{
			{Account: "cash", Currency: "EUR", Debit: 1}, {Account: "salaries", Currency: "EUR", Credit: 1},
		}
		writes := filetest.Must(ledger.Post(e))(t)
		storetest.Put(t, d.Store, writes...)
		require.False(t, d.vouched(t, writes...), sentence)
	}
	done := filetest.Must(seal.Sealer{Store: d.Store, Origins: d.origins(), Now: d.Now}.Run(t.Context()))(t)
	require.Equal(t, []int{11, 5, 0}, []int{done.Entries, done.Unfounded, done.Unreadable})
	require.Positive(t, done.OldestSeconds)
	verifier := seal.Verifier{From: d.Store, Origins: d.origins()}
	found := filetest.Must(sealtest.Findings(t.Context(), verifier))(t)
	require.Len(t, found, 5)
	for _, f := range found {
		require.Equal(t, seal.Unfounded, f.Kind)
	}
	entry := d.entry(t, ledger.EntryID("acme", "e1"))
	d.faults.FailReads(1)
	_, err = d.origins().Vouched(t.Context(), entry)
	require.Error(t, err, "a failed read says neither that an entry is genuine nor that it is not")
}
