package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// StockCollection holds the stock of each tenant's products.
const StockCollection = "stock"

// StockKind is what the audit calls the subject of a change of stock.
const StockKind = "stock"

// MaxPieces is the most pieces of one product that can be available.
const MaxPieces = 1_000_000_000

// The errors of a change of stock. Any other means that nothing certain is known.
var (
	// ErrNoStock: nobody has ever set the product's stock. An order of it is out of stock.
	ErrNoStock = errors.New("orders: no stock of this product")
	// ErrInvalid, or audit.ErrInvalid, is wrapped by every refusal of a change; the text says why, without a
	// value.
	ErrInvalid = errors.New("orders: invalid change")
	// ErrChanged: not as many pieces are available as were expected.
	ErrChanged = errors.New("orders: stock changed since it was looked at")
)

// Stock is the pieces of one product. Their sum changes only where a person sets it.
type Stock struct {
	Tenant    string `json:"tenant" store:"tenant,required"`
	ProductID string `json:"product_id" store:"product_id,required" show:"Product" link:"stock"`
	// Available pieces can be ordered.
	Available int64 `json:"available" store:"available,required" show:"Available"`
	// Reserved pieces belong to orders that wait for their payment.
	Reserved int64 `json:"reserved" store:"reserved" show:"Reserved"`
	// Sold pieces belong to orders that were confirmed.
	Sold int64 `json:"sold" store:"sold" show:"Sold"`
}

// StockKey is the key of the stock of a tenant's product.
func StockKey(tenant, product string) store.Key {
	return store.Key{Collection: StockCollection, ID: store.Path(tenant, product)}
}

// ReadStock reads the document of a product's stock.
func ReadStock(doc store.Document) (Stock, error) {
	var s Stock
	if err := store.Decode(doc.Fields, &s); err != nil || min(s.Available, s.Reserved, s.Sold) < 0 {
		return Stock{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return s, nil
}

// reserving returns the write that reserves pieces, at the version that was read.
func (s Stock) reserving(pieces int64, version store.Version) store.Write {
	s.Available, s.Reserved = s.Available-pieces, s.Reserved+pieces
	return store.Replace(StockKey(s.Tenant, s.ProductID), version, store.Encode(&s))
}

// moving returns the write that sells or releases reserved pieces. The order's own write holds that it
// happens once.
func moving(tenant string, to move, item Item) store.Write {
	add := map[string]int64{"reserved": -item.Quantity, "sold": item.Quantity}
	if to == release {
		add = map[string]int64{"reserved": -item.Quantity, "available": item.Quantity}
	}
	return store.Increment(StockKey(tenant, item.ProductID), add, nil)
}

// Keeper shows the stock and changes it. Every field is required.
type Keeper struct {
	Store store.Store
	Now   func() time.Time
	// NewID tells apart what happens in one microsecond; random.
	NewID func() string
}

// Change names the author of a change and the reason.
type Change struct {
	Who string `json:"-"`
	Why string `json:"why"`
	// Expect, if set, is how many pieces were available when the person looked.
	Expect *int64 `json:"expect,omitempty"`
}

// Get returns the stock of a tenant's product. The error is ErrNoStock, ErrBroken, or an outage.
func (k *Keeper) Get(ctx context.Context, tenant, product string) (Stock, error) {
	s, _, err := look(ctx, k.Store, StockKey(tenant, product), ErrNoStock, ReadStock)
	return s, err
}

// List returns a page of the stock of a tenant's products, by id; next is zero on the last.
func (k *Keeper) List(ctx context.Context, tenant string, after store.Cursor, limit int) (page []Stock, next store.Cursor, err error) {
	query := store.Query{Collection: StockCollection, IDPrefix: store.Path(tenant) + "~", After: after, Limit: limit}
	return store.List(ctx, k.Store, query, ReadStock)
}

// Set says how many pieces of a tenant's product can be ordered from now on. Those that are reserved or sold
// stay so. The error wraps ErrInvalid or audit.ErrInvalid, is ErrChanged, ErrBroken or store.ErrBusy, or says
// that nothing is known.
func (k *Keeper) Set(ctx context.Context, tenant, product string, available int64, by Change) (Stock, error) {
	switch {
	case !pii.ID.Valid(tenant), !pii.ID.Valid(product):
		return Stock{}, fmt.Errorf("%w: an id has at most 128 of letters, digits and . _ : -, and begins with a letter or digit", ErrInvalid)
	case available < 0 || available > MaxPieces:
		return Stock{}, fmt.Errorf("%w: available is a whole number from 0 to %d", ErrInvalid, MaxPieces)
	}
	var s Stock
	_, err := store.Update(ctx, k.Store, StockKey(tenant, product), func(doc store.Document) ([]store.Write, error) {
		var before map[string]any
		s = Stock{Tenant: tenant, ProductID: product}
		if doc.Version != 0 {
			var err error
			if s, err = ReadStock(doc); err != nil {
				return nil, err
			}
			before = map[string]any{"available": s.Available}
		}
		switch {
		case doc.Version != 0 && s.Available == available:
			return nil, nil // perhaps by a commit of ours whose answer was lost
		case by.Expect != nil && *by.Expect != s.Available:
			return nil, ErrChanged
		}
		s.Available = available
		return audit.Entry{
			Kind: StockKind, Tenant: tenant, Subject: product, Action: "set", Who: by.Who, Why: by.Why, At: k.Now(),
			Before: before, After: map[string]any{"available": available},
		}.With(k.NewID(), store.Replace(doc.Key, doc.Version, store.Encode(&s)))
	})
	if err != nil {
		return Stock{}, err
	}
	return s, nil
}
