// Package products owns the points of each product. A document overrides the catalog's product of its id, or
// retires it. The package owns the audited changes, and the short cache for reads. While the store does not
// answer, no product is known, even if the catalog has it.
package products

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/store"
)

// Collection holds a document for each product of a tenant that was set or retired.
const Collection = "products"

// Kind is the audit's kind of subject for products.
const Kind = "product"

// The errors. After any other, which is the store's, a change may have been made.
var (
	ErrUnknown = console.Refuse(console.Absent, "product_unknown",
		"Neither the catalog nor the store has a product of that id.")
	ErrBroken = errors.New("products: stored product is not readable")
)

// State is whether orders may name a product.
type State string

// The states of a product.
const (
	Active  State = "active"  // orders may name it
	Retired State = "retired" // orders may not name it any more
)

// Where a product is declared.
const (
	FromCatalog = "catalog"
	FromStore   = "store"
)

// Product is the current state of a product.
type Product struct {
	Tenant string `json:"tenant" store:"tenant,required"`
	ID     string `json:"id" store:"product_id,required" show:"Product" link:"products"`
	// Points are the points of one piece; of a retired product, those that it had.
	Points int64  `json:"points" store:"points" show:"Points"`
	State  State  `json:"state" store:"state" show:"State"`
	Origin string `json:"origin" show:"From"`
	// Since is the time of its last change; zero if it comes from the catalog.
	Since   time.Time     `json:"since,omitzero" store:"since" show:"Since"`
	Version store.Version `json:"version"` // which a change may require; 0: there is no document
}

// Key is the key of the document of a tenant's product.
func Key(tenant, id string) store.Key {
	return store.Key{Collection: Collection, ID: store.Path(tenant, id)}
}

func (p Product) side() map[string]any {
	if p.State == "" {
		return nil
	}
	return map[string]any{"points": p.Points, "state": string(p.State), "origin": p.Origin}
}

// Read reads a product's document.
func Read(doc store.Document) (Product, error) {
	p := Product{Origin: FromStore, Version: doc.Version}
	err := store.Decode(doc.Fields, &p)
	valid := 1 <= p.Points && p.Points <= catalog.MaxPoints && !p.Since.IsZero()
	if err != nil || !valid || (p.State != Active && p.State != Retired) {
		return Product{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return p, nil
}

// declared has the catalog's products, which all tenants have at first.
type declared = map[string]catalog.Product

// look reads a product past every cache. The error is ErrUnknown, ErrBroken, or the store's.
func look(ctx context.Context, from store.Getter, start declared, tenant, id string) (Product, error) {
	if !pii.ID.Valid(tenant) || !pii.ID.Valid(id) {
		return Product{}, ErrUnknown
	}
	doc, err := store.Find(ctx, from, Key(tenant, id))
	if err != nil {
		return Product{}, fmt.Errorf("products: %w", err)
	}
	return current(doc, start, tenant, id)
}

// current returns a product by its document, else by the catalog.
func current(doc store.Document, start declared, tenant, id string) (Product, error) {
	if doc.Version != 0 {
		return Read(doc)
	}
	if p, ok := start[id]; ok {
		return fromCatalog(tenant, id, p), nil
	}
	return Product{}, ErrUnknown
}

func fromCatalog(tenant, id string, p catalog.Product) Product {
	return Product{Tenant: tenant, ID: id, Points: p.Points, State: Active, Origin: FromCatalog}
}

// Editor reads and changes products. Every field but Changed is required.
type Editor struct {
	Store   store.Store
	Start   map[string]catalog.Product // the catalog's
	Now     func() time.Time
	NewID   func() string           // random: two changes may have the same time
	Changed func(tenant, id string) // is called after each committed change
}

// Get returns a tenant's product, even a retired one, past every cache. The error is ErrUnknown, ErrBroken,
// or the store's.
func (ed *Editor) Get(ctx context.Context, tenant, id string) (Product, error) {
	return look(ctx, ed.Store, ed.Start, tenant, id)
}

// List returns a page of a tenant's products, of catalog and store, by id; next is zero on the last.
func (ed *Editor) List(
	ctx context.Context, tenant string, after store.Cursor, limit int,
) (page []Product, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, IDPrefix: store.Path(tenant) + "~", Limit: limit}
	if !after.IsZero() {
		query.After.ID = store.Path(tenant, after.ID)
	}
	stored, err := ed.Store.Query(ctx, query)
	if err != nil {
		return nil, next, fmt.Errorf("products: list: %w", err)
	}
	found := map[string]Product{}
	for id, p := range ed.Start {
		// Ids after the last document of a full page belong to the next page.
		if id > after.ID && (stored.Next.IsZero() || store.Path(tenant, id) <= stored.Next.ID) {
			found[id] = fromCatalog(tenant, id, p)
		}
	}
	for _, doc := range stored.Documents {
		p, err := Read(doc)
		if err != nil {
			return nil, next, err
		}
		found[p.ID], next.ID = p, p.ID
	}
	if stored.Next.IsZero() {
		next = store.Cursor{}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if len(page) == limit {
			return page, store.Cursor{ID: page[limit-1].ID}, nil
		}
		page = append(page, found[id])
	}
	return page, next, nil
}

// Set adds a product, or changes its points. The error is as in audit.Change.Update.
func (ed *Editor) Set(ctx context.Context, by audit.Author, in SetProduct) (Product, error) {
	set := func(Product) (int64, State, error) { return in.Points, Active, nil }
	return ed.change(ctx, in.ProductOf, "set", in.By(by), set)
}

// Retire makes a product unknown. The error is as in Set, or ErrUnknown.
func (ed *Editor) Retire(ctx context.Context, by audit.Author, in RetireProduct) (Product, error) {
	return ed.change(ctx, in.ProductOf, "retire", in.By(by), func(before Product) (int64, State, error) {
		if before.State == "" {
			return 0, "", ErrUnknown
		}
		return before.Points, Retired, nil
	})
}

func (ed *Editor) change(
	ctx context.Context, in ProductOf, action string, by audit.Change, next func(Product) (int64, State, error),
) (p Product, err error) {
	now, tenant, id := ed.Now().UTC().Truncate(time.Microsecond), in.Tenant, in.ID
	decide := func(doc store.Document) (made audit.Made, err error) {
		before, _ := current(doc, ed.Start, tenant, id) // an unreadable product can be set
		after := Product{Tenant: tenant, ID: id, Origin: FromStore, Since: now}
		p = before
		if after.Points, after.State, err = next(before); err != nil {
			return made, err
		}
		if doc.Version != 0 && before.Points == after.Points && before.State == after.State {
			return made, nil // perhaps after an own commit whose answer was lost
		}
		p = after
		made = audit.Made{Action: action, Before: before.side(), After: after.side(), Version: &p.Version}
		made.Writes = []store.Write{store.Replace(doc.Key, doc.Version, store.Encode(&after))}
		return made, nil
	}
	of := audit.Subject{Kind: Kind, Tenant: tenant, ID: id}
	changed, err := by.Update(ctx, ed.Store, Key(tenant, id), of, now, ed.NewID(), decide)
	if err != nil {
		return Product{}, err
	}
	if changed && ed.Changed != nil {
		ed.Changed(tenant, id)
	}
	return p, nil
}

const (
	// RememberedFor is how long a value is cached, and so how late another process may notice a change.
	RememberedFor = 30 * time.Second
	maxRemembered = 10_000
	readTime      = 5 * time.Second // bounds one read, which callers share
)

// Reader reads the points of products, and caches the points of known ones. It uses no expired value, even if
// the store does not answer. It is safe for concurrent use.
type Reader struct {
	store store.Getter
	start declared
	known *cache.Cache[int64] // points, by the id of the document
}

// NewReader returns a reader; start is the catalog's products.
func NewReader(from store.Getter, start map[string]catalog.Product, now func() time.Time) *Reader {
	return &Reader{store: from, start: start, known: cache.New[int64](maxRemembered, now)}
}

// Points returns the points of one piece of a tenant's product; known reports whether orders may name it. The
// error wraps ErrBroken, or is the store's.
func (r *Reader) Points(ctx context.Context, tenant, id string) (points int64, known bool, err error) {
	points, err = r.known.Get(ctx, Key(tenant, id).ID, func(ctx context.Context) (int64, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		p, err := look(ctx, r.store, r.start, tenant, id)
		if err == nil && p.State != Active {
			err = ErrUnknown
		}
		return p.Points, RememberedFor, err
	})
	if errors.Is(err, ErrUnknown) {
		return 0, false, nil
	}
	return points, err == nil, err
}

// Forget removes a tenant's product from the cache.
func (r *Reader) Forget(tenant, id string) { r.known.Forget(Key(tenant, id).ID) }

// ProductOf names a product.
type ProductOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"product id"`
}

// RetireProduct makes a product unknown.
type RetireProduct struct {
	ProductOf
	console.Edit
}

// SetProduct sets the points of a product.
type SetProduct struct {
	ProductOf
	Points int64 `json:"points" validate:"required,min=1,max=1000000000" help:"the points of one piece, from 1"`
	console.Edit
}

// Operations are what people do with products.
func (ed *Editor) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "products ls", Path: "GET /v1/ops/products",
			Summary: "List the products of the catalog and of the store, with the points of one piece",
			Empty: "No product is known: an order of one becomes a dead letter. Set it, or declare it in " +
				"the catalog.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Product], error) {
			return console.Listed(ed.List(ctx, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "products show", Path: "GET /v1/ops/products/{id}",
			Summary: "Show the points of a product, since when, and who changed them",
			Beside:  []string{"products history"},
		}, func(ctx context.Context, _ audit.Author, in ProductOf) (Product, error) {
			p, err := ed.Get(ctx, in.Tenant, in.ID)
			if err == nil && p.State == Retired {
				err = errRetired
			}
			return p, err
		}),
		console.New(console.Row{
			Name: "products set", Path: "PUT /v1/ops/products/{id}", Needs: console.Reason, Before: "products show",
			Summary: "Add a product, or change the points of one piece from now on",
			Help: "It is for orders credited after the change. Dead letters for an unknown product can " +
				"be replayed.",
		}, ed.Set),
		console.New(console.Row{
			Name: "products retire", Path: "DELETE /v1/ops/products/{id}", Needs: console.Reason,
			Before:  "products show",
			Summary: "Remove a product from now on, even if the catalog declares it",
			Help:    "Every order that names it becomes a dead letter.",
		}, ed.Retire),
		console.History("products", Kind, ed.Store),
	}
}

var errRetired = console.Refuse(console.Absent, "product_retired",
	"The product is retired; its history says since when and why. Setting it makes it known again.")
