// Package parcels counts the scans of parcels.
package parcels

import (
	"context"

	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

// Collection has one document per tenant and parcel.
const Collection = "parcels"

// Scanned is the data of parcel.scanned, as catalog/messages.yaml declares it.
type Scanned struct {
	ParcelID string `json:"parcel_id"`
	Depot    string `json:"depot"`
}

// Register adds the handlers under the names that the catalog uses.
func Register(r *handler.Registry) { handler.RegisterTx(r, "parcels.count", count) }

// count adds a scan to its parcel, in one commit with the event's record: a repeated delivery counts once.
func count(_ context.Context, e handler.Event, scan Scanned) (handler.Effect, error) {
	parcel := store.Key{Collection: Collection, ID: store.ID(e.Tenant, scan.ParcelID)}
	write := store.Increment(parcel, map[string]int64{"scans": 1}, map[string]any{"depot": scan.Depot})
	return handler.Effect{Writes: []store.Write{write}, Result: "counted"}, nil
}
