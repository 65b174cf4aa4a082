package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/products"
	"billhook/internal/compose/operations"
	"billhook/internal/console/ops"
	"billhook/internal/retry"
)

func TestProductIsChangedOnceItsEffectIsConfirmed(t *testing.T) {
	t.Parallel()
	db, at := openStore(t), time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	clock := func() time.Time { at = at.Add(time.Minute); return at }
	start := map[string]catalog.Product{"hat": {Points: 250}}
	play(t, asAda, serveAPI(t, &ops.API{
		Reads:      ops.Reads{Store: db, Now: clock, Catalog: &catalog.Catalog{Products: start}},
		Operations: operations.All(operations.Apps{Products: &products.Keeper{Store: db, Start: start, Now: clock, NewID: uuid.NewString}}),
	}), []step{
		{line: "products ls", want: "PRODUCT POINTS STATE FROM SINCE\nhat 250 active catalog -"},
		{line: "products set new --points 500 --why sold", want: "POINTS 500"},
		{line: "products set hat --points 300 --why dearer", want: "POINTS 250", fails: "nothing was changed"},
		{line: "products set hat --points 300 --why dearer", typed: "yes\n", want: "Type hat to set it:", fails: "nothing was changed"},
		{line: "products set hat --points 300 --why dearer", typed: "hat\n", want: "POINTS 300"},
		{line: "products set hat --points 7 --why w --dry-run", want: "FROM store"},
		{line: "products set hat --points 6 --why w --json", fails: "--yes"},
		{line: "products set other --points 0 --why free", fails: "refused"},
		{line: "products retire hat --why gone", typed: "300\n", fails: "nothing was changed"},
		{line: "products retire hat --why gone", typed: "hat\n", want: "STATE retired"},
		{line: "products retire odd --why gone", fails: "product_unknown"},
		{line: "products history hat", want: "retire token:ada gone"},
	})
}

func TestStockIsChangedOnceItsEffectIsConfirmed(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	shop, err := orderstest.Open(db)
	require.NoError(t, err)
	server := serveAPI(t, &ops.API{Reads: ops.Reads{Store: db, Now: shop.Now, Catalog: shop.Catalog}, Operations: operations.All(operations.Apps{Store: db, Stock: shop.Keeper})})
	play(t, asAda, server, []step{{line: "stock set hat --available 5 --why counted", want: "AVAILABLE 5"}})
	for _, e := range []orderstest.Event{orderstest.Created("e1", "o1", "hat 3"), orderstest.Created("e2", "o2", "cap 1")} {
		_, err := shop.Deliver(t.Context(), db, e, false)
		require.NoError(t, err)
	}
	play(t, asAda, server, []step{
		{line: "orders ls", want: "o1 PaymentInitiated - - usr_42 "},
		{line: "orders ls --state OrderCancelled", want: "o2 OrderCancelled out_of_stock cap usr_42 "},
		{line: "orders ls --state all --limit 1", want: "There are more; raise --limit."},
		{line: "orders show o1", want: "PRODUCT QUANTITY\nhat 3\n\nSTATE AT EVENT\n"},
		{line: "orders show o1 --tenant other", fails: "order_unknown"},
		{line: "stock set hat --available 1 --why found", want: "AVAILABLE 2\nRESERVED 3\nSOLD 0", fails: "nothing was changed"},
		{line: "stock set hat --available 1 --why found", typed: "yes\n", want: "Type hat to set it:", fails: "nothing was changed"},
		{line: "stock set hat --available 1 --why found", typed: "hat\n", want: "AVAILABLE 1"},
		{line: "stock set cap --available 4 --dry-run", want: "Pieces that are reserved or sold stay so."},
		{line: "stock show cap", fails: "stock_unknown"},
		{line: "stock set hat --available -1 --why w --yes", fails: "refused"},
		{line: "stock set hat --available 5 --why w --json", fails: "--yes"},
		{line: "stock ls", want: "PRODUCT AVAILABLE RESERVED SOLD\nhat 1 3 0"},
		{line: "stock history hat", want: "token:ada found available 2 available 1"},
	})
}

// TestCustomerIsLinkedOnceThatIsConfirmed: the guest c1 has 300 points of two orders.
func TestCustomerIsLinkedOnceThatIsConfirmed(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	now := func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
	for order, points := range map[string]int64{"o1": 100, "o2": 200} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"),
			Amount: points, Currency: ledger.Points, CreatedAt: now(),
		})
		require.NoError(t, err)
		commit(t, db, writes...)
	}
	reads := ops.Reads{Store: db, Now: now, Catalog: &catalog.Catalog{}}
	play(t, asAda, serveAPI(t, &ops.API{
		Reads: reads, Operations: operations.All(operations.Apps{Reads: reads, Customers: &customers.Operator{Store: db, Now: now, NewID: uuid.NewString}}),
	}), []step{
		{line: "customers show c1", fails: "customer_not_linked"},
		{line: "customers link c1 u1 --dry-run", want: "300 points of guests' orders are on points:customer:c1; linking moves them."},
		{line: "customers link c1 u1 --why w", typed: "yes\n", fails: "nothing was changed"},
		{line: "customers link c1 a@example.org --why w --yes", fails: "this is no uid"},
		{line: "customers link c1 u1 --why ticket-7", typed: "u1\n", want: "MOVED POINTS 300\nOF ORDERS 2\nLEFT 0"},
		{line: "customers link c1 u2 --why typo --yes", want: "USER BEFORE u1"},
		{line: "customers ls", want: "c1 u2 2026-03-02T10:15:00Z"},
		{line: "customers activity c1", want: "ACCOUNT POINTS\npoints:customer:c1 0"},
		{line: "customers unlink c1 --why two-people", typed: "c1\n", want: "Customer c1 is linked to nobody."},
		{line: "customers unlink c1 --why again --yes", fails: "linked to nobody"},
		{line: "customers history c1", want: "token:ada ticket-7"},
	})
}

// partner answers with a status.
type partner struct{ status int }

func (p *partner) Post(context.Context, endpoints.Address, string, []byte) (int, error) {
	return p.status, retry.HTTPStatus(p.status)
}

func (p *partner) Check(context.Context, string) error { return nil }

func TestEndpointShowsItsSecretWhenItIsMadeAndNotAgain(t *testing.T) {
	t.Parallel()
	db, at, ids := openStore(t), time.Date(2126, 3, 2, 10, 15, 0, 0, time.UTC), 0
	clock := func() time.Time { at = at.Add(time.Second); return at }
	next := func() string { ids++; return fmt.Sprint("id-", ids) }
	there := &partner{status: 204}
	server := serveAPI(t, &ops.API{Reads: ops.Reads{Store: db, Now: clock}, Operations: operations.All(operations.Apps{Endpoints: &endpoints.Keeper{
		Store: db, Poster: there, OldSecretFor: 24 * time.Hour, Now: clock, NewID: next, NewSecret: func() string { return "whsec_" + next() },
	}})})
	play(t, asAda, server, []step{
		{line: "endpoints add https://a.example/hooks --id a --events invoice.*,order.# --why partner", want: "SECRET SHOWN THIS ONCE whsec_id-1"},
		{line: "endpoints add https://a.example/hooks --id a --why twice", fails: "endpoint_exists"},
		{line: "endpoints ls --tenant default", want: "a default https://a.example/hooks invoice.*, order.# enabled - -"},
		{line: "endpoints ls --state odd", fails: "none of disabled, failing"},
		{line: "endpoints test a", want: "DELIVERED yes\nSTATUS 204\nREASON -\nMILLISECONDS 1000"},
		{line: "endpoints rotate a --why leaked", want: "The secret that it has signs beside the new one for a time", fails: "nothing was changed"},
		{line: "endpoints rotate a --why leaked --dry-run", want: "The secret that it has signs beside the new one for a time"},
		{line: "endpoints rotate a --why leaked", typed: "a\n", want: "SECRET SHOWN THIS ONCE whsec_id-"},
		{line: "endpoints show a", want: "OLD SECRET SIGNS UNTIL 2126-03-03"},
		{line: "endpoints disable a --why noisy --yes", want: "STATE disabled"},
		{line: "endpoints ls --state disabled", want: "disabled by_hand"},
		{line: "endpoints enable a --why asked --yes", want: "STATE enabled"},
	})
	there.status = 410
	play(t, asAda, server, []step{
		{line: "endpoints test a", want: "REASON callee_"},
		{line: "endpoints rm a --why gone", typed: "no\n", fails: "nothing was changed"},
		{line: "endpoints rm a --why gone", typed: "a\n", want: "ENDPOINT a"},
		{line: "endpoints show a", fails: "endpoint_unknown"},
	})
	for _, line := range []string{"ls", "show a", "test a"} {
		out, _ := say(t, asAda, append(words("endpoints "+line), "--json", "--server", server)...) // what is gone is an error
		require.NotContains(t, out, "whsec_")
	}
}
