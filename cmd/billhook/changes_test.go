package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/products"
	"billhook/internal/compose/operations"
	"billhook/internal/pipeline/events"
)

func TestAChangeIsMadeOnceItsEffectIsConfirmed(t *testing.T) {
	t.Parallel()
	db, at := openStore(t), time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	clock := func() time.Time { at = at.Add(time.Minute); return at }
	start := map[string]catalog.Product{"hat": {Points: 250}}
	play(t, asAda, serveAPI(t, operations.Apps{
		Reads:    events.Reads{Store: db, Now: clock, Catalog: &catalog.Catalog{Products: start}},
		Products: &products.Editor{Store: db, Start: start, Now: clock, NewID: uuid.NewString},
	}), []step{
		{line: "products ls", want: "PRODUCT POINTS STATE FROM SINCE\nhat 250 active catalog -"},
		{line: "products set absent --points 4 --dry-run"},
		{line: "products set new --points 500 --why sold", want: "POINTS 500"},
		{line: "products set hat --points 300 --why dearer", want: "POINTS 250", fails: "nothing was changed"},
		{line: "products set hat --points 300 --why dearer", typed: "yes\n", want: "Type hat to set it:", fails: "nothing was changed"},
		{line: "products set hat --points 300 --why dearer", typed: "hat\n", want: "POINTS 300"},
		{line: "products set hat --points 7 --why w --dry-run", want: "FROM store"},
		{line: "products set hat --points 6 --why w --json", fails: "--yes"},
		{line: "products set other --points 0 --why free", fails: "refused"},
		{line: "products show absent", fails: "product_unknown"},
		{line: "products retire hat --why gone", typed: "300\n", fails: "nothing was changed"},
		{line: "products retire hat --why gone", typed: "hat\n", want: "STATE retired"},
		{line: "products retire odd --why gone", fails: "product_unknown"},
		{line: "products history hat", want: "retire token:ada gone"},
	})
}

// anywhere takes every address.
type anywhere struct{ endpoints.Poster }

func (anywhere) Check(context.Context, string) error { return nil }

func TestASecretIsPrintedWhenItIsMadeAndNotAgain(t *testing.T) {
	t.Parallel()
	db, ids := openStore(t), 0
	next := func() string { ids++; return fmt.Sprint("id-", ids) }
	server := serveAPI(t, operations.Apps{Reads: events.Reads{Store: db, Now: time.Now}, Endpoints: &endpoints.Editor{
		Store: db, Poster: anywhere{}, OldSecretFor: 24 * time.Hour, Now: time.Now, NewID: next, NewSecret: func() string { return "whsec_" + next() },
	}})
	play(t, asAda, server, []step{
		{line: "endpoints add https://a.example/hooks --id a --events invoice.*,order.# --why partner", want: "SECRET SHOWN THIS ONCE whsec_id-1"},
		{line: "endpoints rotate a --why leaked --dry-run", want: "The secret that it has signs beside the new one for a time"},
		{line: "endpoints rotate a --why leaked", typed: "a\n", want: "SECRET SHOWN THIS ONCE whsec_id-"},
	})
	for _, line := range []string{"ls", "show a", "disable a --why noisy --yes", "history a"} {
		out, err := say(t, asAda, append(words("endpoints "+line), "--json", "--server", server)...)
		require.NoError(t, err)
		require.NotContains(t, out, "whsec_")
	}
}
