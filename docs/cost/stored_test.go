package cost_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// size is what a value takes, a text and a name one byte more than they have.
func size(value any) (bytes int) {
	switch v := value.(type) {
	case string:
		return len(v) + 1
	case []any:
		for _, one := range v {
			bytes += size(one)
		}
	case map[string]any:
		for name, one := range v {
			bytes += size(name) + size(one)
		}
		return bytes + 32
	case bool, nil:
		return 1
	default:
		return 8 // numbers and times
	}
	return bytes
}

// stored is what a document takes with its entries in the indexes of terraform/firestore.tf, as Google's page
// "Storage size calculations" has it.
func stored(t *testing.T, doc store.Write) (bytes int) {
	t.Helper()
	doc.Fields[doc.Stamp] = time.Time{}
	name, declared := size(doc.Key.Collection)+size(doc.Key.ID)+16, read(t, "terraform/firestore.tf")
	quoted := regexp.MustCompile(`"(\w+)"`)
	_, single, _ := strings.Cut(declared, "\n  indexed = {")
	for _, field := range quoted.FindAllStringSubmatch(matched(t, single,
		`(?s)`+doc.Key.Collection+` += \[(.+?)\]`)[1], -1) {
		if value, there := doc.Fields[field[1]]; there {
			bytes += name + size(field[1]) + size(value) + 32
		}
	}
	composite := regexp.MustCompile(`collection = "` + doc.Key.Collection + `", fields = \[(.+?)\]`)
	for _, index := range composite.FindAllStringSubmatch(declared, -1) {
		bytes += name + 32
		for _, field := range quoted.FindAllStringSubmatch(index[1], -1) {
			bytes += size(doc.Fields[field[1]])
		}
	}
	return bytes + name + size(doc.Fields)
}

// creditStored is what the record of a credit and its entry take. Its ids are as long as PayNow's and
// Pub/Sub's.
func creditStored(t *testing.T) (record, entry int) {
	t.Helper()
	at, id, hash := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC), "530217764480030001", strings.Repeat("a", 32)
	uuid, message := "0f8fad5b-d9cb-469f-a165-70867728950e", "17004637291085712"
	require.Contains(t, read(t, "internal/contract/testdata/payment.v1/order_paid.json"), id)
	credit := ledgertest.Credited(t, ledger.Move{
		Tenant: dedupe.DefaultTenant, Order: id, EventID: id, To: ledger.CustomerPoints(id), Amount: 2500,
		OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: at,
	})[0]
	of := dedupe.Record{
		Identity: dedupe.Identity{
			Queue: "paynow-events", Tenant: dedupe.DefaultTenant, EventID: id, EventType: "order.paid",
			MessageID:   message,
			PayloadHash: "sha256:" + hash + hash, CorrelationID: uuid, OrderingKey: id,
			Customer: contract.CustomerOf(dedupe.DefaultTenant, id),
		},
		Status: dedupe.Completed, Result: "credited", Ref: credit.Key.ID,
		Tries: dedupe.Tries{Attempts: 1, LeaseToken: uuid, Log: []dedupe.Attempt{
			{
				Number: 1, Delivery: 1, MessageID: message, Instance: uuid, Begun: at, Ended: at, Outcome: "processed",
				Trace: hash,
			},
		}},
		Times: dedupe.Times{
			ReceivedAt: at, PublishedAt: at, CreatedAt: at, UpdatedAt: at, ProcessedAt: at, ExpireAt: at,
		},
	}
	key := dedupe.Key(of.Queue, of.Tenant, of.EventID)
	return stored(t, store.Create(key, of.Fields()).Stamped(ledger.FieldCommitted)), stored(t, credit)
}
