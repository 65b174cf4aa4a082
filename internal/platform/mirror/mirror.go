// Package mirror copies documents of one database into a second, for a program that may not read the first. A
// copy has only the members that this program reads. The package owns the copies, and a to-do for each copy
// that may be out of date. Its caller decides what is copied.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
)

// Collection has the to-dos in the first database, and the progress of a full copy in the second.
const Collection = "mirrors"

const (
	// copyTime bounds how long a commit waits for its copies; a task makes the missing ones.
	copyTime = 3 * time.Second
	// A run of the task makes copies in pages and ends after most copies.
	page, most = 500, 5000

	token, gone = "token", "gone"
)

// Mirror is the first database, and copies changed documents after each commit. Every field is required. It
// is safe for concurrent use, even by several processes.
type Mirror struct {
	store.Store
	// Copies is the second database.
	Copies store.Store
	// Of names the first database. A database restored from a backup needs another name.
	Of string
	// Members has the copied collections, each with its copied members.
	Members map[string]map[string]any
	// NewID returns a random id. Each copy and to-do gets a new one, so that every write changes the version.
	NewID func() string
}

// Commit writes a to-do along with each copied document, and then makes the copies. It does not return a
// copy's error, because CatchUp makes the copy later.
func (m *Mirror) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	var todos []store.Write
	for _, w := range writes {
		if m.Members[w.Key.Collection] != nil {
			key := store.Key{Collection: Collection, ID: w.Key.Collection + "~" + w.Key.ID}
			todos = append(todos, store.Set(key, map[string]any{token: m.NewID()}))
		}
	}
	versions, err := m.Store.Commit(ctx, slices.Concat(writes, todos))
	if err != nil || len(todos) == 0 {
		return versions, err
	}
	failpoint.Hit(failpoint.MirrorCopy)
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	for i, w := range todos {
		_ = m.do(ctx, store.Document{Key: w.Key, Version: versions[len(writes)+i]}) // on an error it stays
	}
	return versions[:len(writes)], nil
}

// do carries out a to-do and deletes it, unless a later change has written it again, at another version.
func (m *Mirror) do(ctx context.Context, todo store.Document) error {
	collection, id, _ := strings.Cut(todo.Key.ID, "~")
	if err := m.copy(ctx, store.Key{Collection: collection, ID: id}); err != nil {
		return err
	}
	failpoint.Hit(failpoint.MirrorCopied)
	_, err := m.Store.Commit(ctx, []store.Write{store.Delete(todo.Key, todo.Version)})
	if err != nil && !errors.Is(err, store.ErrStale) {
		return fmt.Errorf("mirror: %s: %w", todo.Key, err)
	}
	return nil
}

// copy updates a copy. It reads the copy before the document and replaces that version, so a process with an
// older document finds the copy changed. Versions never repeat, because each write has a new token and the
// copy of a deleted document stays, marked as gone.
func (m *Mirror) copy(ctx context.Context, key store.Key) error {
	_, err := store.Update(ctx, m.Copies, key, func(copied store.Document) ([]store.Write, error) {
		doc, err := store.Find(ctx, m.Store, key)
		fields := map[string]any{token: m.NewID()}
		if doc.Version == 0 {
			fields[gone] = true
		}
		for name := range m.Members[key.Collection] {
			if value, there := doc.Fields[name]; there {
				fields[name] = value
			}
		}
		return []store.Write{store.Replace(key, copied.Version, fields)}, err
	})
	if err != nil {
		return fmt.Errorf("mirror: copy of %s: %w", key.Collection, err)
	}
	return nil
}

// CatchUp carries out the remaining to-dos, and copies all documents if the copies are not of database Of.
func (m *Mirror) CatchUp(ctx context.Context) (copies int, err error) {
	left := store.Query{Collection: Collection, Limit: page}
	for n := page; n == page && copies < most; copies += n {
		if n, _, err = each(ctx, m.Store, left, m.do); err != nil {
			return copies, err
		}
	}
	for n, over := 0, false; !over && copies < most; copies += n {
		if n, over, err = m.rebuild(ctx); err != nil {
			return copies, err
		}
	}
	return copies, nil
}

// each calls does with each document of a page, and returns the first error after all calls.
func each(
	ctx context.Context, from store.Querier, q store.Query, does func(context.Context, store.Document) error,
) (n int, next store.Cursor, err error) {
	found, err := from.Query(ctx, q)
	failed := make([]error, len(found.Documents))
	_ = store.AtOnce(ctx, len(failed), func(ctx context.Context, i int) error {
		failed[i] = does(ctx, found.Documents[i])
		return nil
	})
	return len(failed), found.Next, cmp.Or(err, cmp.Or(failed...))
}

// progress is the state of a full copy: a pass over all copies, even obsolete ones, then over all documents.
type progress struct {
	Of    string `store:"of"`
	Pass  int    `store:"pass"`
	After string `store:"after"`
}

// rebuild renews the next page of copies in a full copy, unless the full copy is over.
func (m *Mirror) rebuild(ctx context.Context) (n int, over bool, err error) {
	of, collections := fmt.Sprint(m.Of, m.Members), slices.Sorted(maps.Keys(m.Members))
	again := func(ctx context.Context, doc store.Document) error { return m.copy(ctx, doc.Key) }
	key := store.Key{Collection: Collection, ID: "rebuilt"}
	moved, err := store.Update(ctx, m.Copies, key, func(doc store.Document) ([]store.Write, error) {
		var at progress
		if err := store.Decode(doc.Fields, &at); err != nil || at.Of != of {
			at = progress{Of: of}
		}
		from := m.Copies
		if at.Pass >= len(collections) {
			from = m.Store
		}
		if at.Pass >= 2*len(collections) {
			return nil, nil
		}
		query := store.Query{Collection: collections[at.Pass%len(collections)], Limit: page}
		query.After.ID = at.After
		copied, next, err := each(ctx, from, query, again)
		if n, at.After = copied, next.ID; next.IsZero() {
			at.Pass++
		}
		return []store.Write{store.Replace(doc.Key, doc.Version, store.Encode(&at))}, err
	})
	return n, len(moved) == 0, err
}

// Copies is the second database for readers: Get does not find copies of deleted documents.
type Copies struct{ store.Store }

// Get returns a copy, or an error that wraps store.ErrNotFound.
func (c Copies) Get(ctx context.Context, key store.Key) (store.Document, error) {
	doc, err := c.Store.Get(ctx, key)
	if err == nil && doc.Fields[gone] == true {
		return store.Document{}, fmt.Errorf("mirror: get %s: %w", key, store.ErrNotFound)
	}
	return doc, err
}
