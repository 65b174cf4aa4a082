package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

// asked is products that are not remembered.
type asked struct {
	points int64
	known  bool
	err    error
	// patience is how long it was given.
	patience time.Duration
}

func (*asked) Remembered(string, string) (int64, bool) { return 0, false }

func (a *asked) Points(ctx context.Context, _, _ string) (int64, bool, error) {
	if deadline, ok := ctx.Deadline(); ok {
		a.patience = time.Until(deadline)
	}
	return a.points, a.known, a.err
}

func TestAnOrderIsTakenWhateverItsProductsAre(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		products *asked
		points   string
	}{
		"worth what the store says":                 {&asked{points: 7, known: true}, "14"},
		"unknown, which the worker finds out":       {&asked{}, ""},
		"not known now, which is no reason to wait": {&asked{err: errors.New("down: ilse.brandvold@example.org")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(c *webhook.Config) { c.Products = test.products })
			got := d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
			require.Equal(t, http.StatusAccepted, got.Code, got.Body)
			points, ok := d.broker.all()[0].message.Attributes["points"]
			require.Equal(t, test.points, points)
			require.Equal(t, test.points != "", ok)
			require.NotZero(t, test.products.patience)
			require.LessOrEqual(t, test.products.patience, 500*time.Millisecond)
			require.NotContains(t, d.log.String(), "ilse")
		})
	}
}
