package ops_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
)

func TestADeadLetterSaysWhatCameAfterItOfItsKey(t *testing.T) {
	t.Parallel()
	after := func(id string, status dedupe.Status, change func(*dedupe.Record)) dedupe.Record {
		r := record("orders", "default", id)
		r.Status, r.CreatedAt, r.PublishedAt = status, at.Add(time.Minute), at.Add(time.Second)
		if change != nil {
			change(&r)
		}
		return r
	}
	for name, test := range map[string]struct {
		letter func(*deadletter.Item)
		events []dedupe.Record
		kept   int
		want   *ops.Later
	}{
		"nothing": {want: &ops.Later{}},
		"each kind of event": {
			events: []dedupe.Record{
				after("e1", dedupe.Completed, nil), after("e2", dedupe.Completed, nil), after("e3", dedupe.DeadLettered, nil), after("e4", dedupe.Processing, nil),
				after("e5", dedupe.Failed, nil), after("e6", dedupe.Failed, func(r *dedupe.Record) { r.DelayTicket = "1-1" }),
			}, kept: 1, want: &ops.Later{Done: 2, Dead: 1, Waiting: 3},
		},
		"of another key, tenant or queue, before it, or itself": {events: []dedupe.Record{
			after("e1", dedupe.Completed, func(r *dedupe.Record) { r.OrderingKey = "u2" }), after("e2", dedupe.Completed, func(r *dedupe.Record) { r.Tenant = "acme" }),
			after("e3", dedupe.Completed, func(r *dedupe.Record) { r.Queue = "refunds" }), after("e4", dedupe.Completed, func(r *dedupe.Record) { r.PublishedAt = at }),
			after("e-d1", dedupe.DeadLettered, nil),
		}, want: &ops.Later{}},
		"more than are looked at": {
			events: func() (all []dedupe.Record) {
				for i := range 101 {
					all = append(all, after(fmt.Sprint("e", i), dedupe.Completed, nil))
				}
				return all
			}(), want: &ops.Later{Done: 100, More: true},
		},
		"more kept than are counted": {kept: 101, want: &ops.Later{Waiting: 100, More: true}},
		"it has no key":              {letter: func(i *deadletter.Item) { i.OrderingKey = "" }},
		"its key keeps no order":     {letter: func(i *deadletter.Item) { i.OrderingKey = contract.UnknownOrderingKey }},
		"its queue keeps no order":   {letter: func(i *deadletter.Item) { i.Queue = "refunds" }},
		"it is not open":             {letter: func(i *deadletter.Item) { i.State = deadletter.Discarded }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			item := dead("orders", "d1", "unknown_product", 0)
			if test.letter != nil {
				test.letter(&item)
			}
			r.commit(t, inStore(item))
			for _, event := range test.events {
				r.commit(t, own(event))
			}
			for i := range test.kept {
				r.put(t, "orders", "u1", fmt.Sprint("kept-", i), time.Time{})
			}
			r.reads(ops.Reads{Store: r.store, Now: func() time.Time { return at }, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
				{ID: "orders", OrderingKey: []string{"uid"}}, {ID: "refunds"},
			}}})
			var letter ops.Letter
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/d1", nil, &letter).Code)
			require.Equal(t, test.want, letter.Later)
		})
	}
}
