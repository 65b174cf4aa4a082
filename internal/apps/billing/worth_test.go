package billing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/products"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// asked is a shelf that counts the questions.
type asked struct {
	shelf
	times int
}

func (a *asked) Points(ctx context.Context, tenant, id string) (int64, bool, error) {
	a.times++
	return a.shelf.Points(ctx, tenant, id)
}

func items(ids ...string) []contract.Item {
	all := make([]contract.Item, len(ids))
	for i, id := range ids {
		all[i] = contract.Item{ProductID: id, Quantity: 1}
	}
	return all
}

func TestADeadLetterNamesTheUnknownProducts(t *testing.T) {
	t.Parallel()
	thousand := make([]contract.Item, 1000)
	for i := range thousand {
		thousand[i] = contract.Item{ProductID: fmt.Sprint("odd-", i), Quantity: 1}
	}
	for name, test := range map[string]struct {
		event handler.Event
		named []string
		// asked is how many products were looked for.
		asked int
	}{
		"alone":                {paid("e", "o", "", items("odd")...), []string{"odd"}, 1},
		"behind a known one":   {paid("e", "o", "", items("known", "odd")...), []string{"odd"}, 2},
		"behind an overflow":   {paid("e", "o", "", contract.Item{ProductID: "most", Quantity: 9}, contract.Item{ProductID: "odd", Quantity: 1}), []string{"odd"}, 2},
		"beside another":       {paid("e", "o", "", items("odd", "known", "even")...), []string{"odd", "even"}, 3},
		"once, however often":  {paid("e", "o", "", items("odd", "known", "odd", "known", "odd")...), []string{"odd"}, 2},
		"as far as it is read": {paid("e", "o", "", thousand...), []string{"odd-0", "odd-1", "odd-2", "odd-3", "odd-4"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books, counted := &ledgertest.Books{}, &asked{shelf: shelf{"known": {Points: 1}, "most": {Points: 1 << 62}}}
			points := pointsOn(books)
			points.Products = counted
			_, err := run(books, points.Credit, test.event)
			requireVerdict(t, err, retry.Malformed, "unknown_product")
			var marked *retry.Error
			require.ErrorAs(t, err, &marked)
			require.Equal(t, test.named, marked.Subjects)
			require.Equal(t, test.asked, counted.times)
			require.Empty(t, books.All(ledger.Entries))
			require.Empty(t, books.All(ledger.Accounts))
		})
	}
}

// failing is products that cannot be asked.
type failing struct{ err error }

func (f failing) Points(context.Context, string, string) (int64, bool, error) { return 0, false, f.err }

func TestAProductThatCannotBeReadNowIsRetried(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		class  retry.Class
		reason string
	}{
		"a store that is down":          {errors.New("no answer"), retry.Unavailable, "store_unavailable"},
		"a product that cannot be read": {fmt.Errorf("%w: odd", products.ErrBroken), retry.Failed, "product_broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			points := pointsOn(books)
			points.Products = failing{test.err}
			_, err := run(books, points.Credit, paid("e", "o", "", items("known")...))
			requireVerdict(t, err, test.class, test.reason)
			require.Empty(t, books.All(ledger.Entries))
		})
	}
}
