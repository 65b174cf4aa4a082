package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var one = store.Key{Collection: "customers", ID: "a~1"}

func mirrored(first, second store.Store) *mirror.Mirror {
	var ids atomic.Int64
	members := map[string]map[string]any{one.Collection: {"uid": ""}}
	newID := func() string { return fmt.Sprint(ids.Add(1)) }
	return &mirror.Mirror{Store: first, Copies: second, Of: "first", Members: members, NewID: newID}
}

// edited is a store whose writes, or the reads of one document, a mistake changes.
type edited struct {
	store.Store
	write func(store.Write) store.Write
	read  func(get func() (store.Document, error)) (store.Document, error)
}

func (e edited) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	for i := range writes {
		if e.write != nil {
			writes[i] = e.write(writes[i])
		}
	}
	return e.Store.Commit(ctx, writes)
}

func (e edited) Get(ctx context.Context, key store.Key) (store.Document, error) {
	get := func() (store.Document, error) { return e.Store.Get(ctx, key) }
	if e.read == nil || key != one {
		return get()
	}
	return e.read(get)
}

func ofToDos(change func(*store.Write)) func(store.Write) store.Write {
	return func(w store.Write) store.Write {
		if w.Key.Collection == mirror.Collection {
			change(&w)
		}
		return w
	}
}

// mistakes are mistakes of a mirror that the model must notice.
var mistakes = map[string]func(first, second *edited){
	"a copy is written without its version": func(_, second *edited) {
		second.write = func(w store.Write) store.Write { return store.Set(w.Key, w.Fields) }
	},
	"a to-do is removed without its version": func(first, _ *edited) {
		first.write = ofToDos(func(w *store.Write) { w.Version = 0 })
	},
	"a to-do that is written again keeps its version": func(first, _ *edited) {
		first.write = ofToDos(func(w *store.Write) { w.Fields = nil })
	},
	"a to-do is removed before the copy is written": func(first, second *edited) {
		second.write = func(w store.Write) store.Write {
			page, _ := first.Query(context.Background(), store.Query{Collection: mirror.Collection, Limit: 1})
			for _, doc := range page.Documents {
				done := []store.Write{store.Delete(doc.Key, doc.Version)}
				_, _ = first.Store.Commit(context.Background(), done)
			}
			return w
		}
	},
	"a copy of an unchanged document keeps its version": func(_, second *edited) {
		second.write = func(w store.Write) store.Write { delete(w.Fields, "token"); return w }
	},
	"the copy of a deleted document is removed": func(_, second *edited) {
		second.write = func(w store.Write) store.Write {
			if w.Fields["gone"] == true {
				return store.Delete(w.Key, w.Version)
			}
			return w
		}
	},
	"the document is read before its copy": func(first, second *edited) {
		var doc store.Document
		var err error
		second.read = func(get func() (store.Document, error)) (store.Document, error) {
			doc, err = first.Store.Get(context.Background(), one)
			return get()
		}
		first.read = func(func() (store.Document, error)) (store.Document, error) { return doc, err }
	},
}

// play has three processes change one document and catch up, in an order and with faults drawn from the seed,
// and sometimes loses the second database. It returns the first wrong copy found while no to-do was left.
func play(t *testing.T, seed uint64, mistake func(first, second *edited)) (wrong string) {
	t.Helper()
	open := func() store.Store {
		db := filetest.Must(boltstore.OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	first, second, chance := open(), open(), rand.New(rand.NewPCG(seed, 0))
	last, processes := mirrored(first, second), [3]dedupetest.Worker{}
	progress := store.Key{Collection: mirror.Collection, ID: "rebuilt"}
	check := func() {
		rebuilt := filetest.Must(store.Find(t.Context(), second, progress))(t)
		left := storetest.All(t, first, mirror.Collection)
		if wrong != "" || rebuilt.Fields["pass"] != int64(2) || len(left) > 0 {
			return
		}
		doc := filetest.Must(store.Find(t.Context(), first, one))(t)
		copied := filetest.Must(store.Find(t.Context(), mirror.Copies{Store: second}, one))(t)
		if doc.Fields["uid"] != copied.Fields["uid"] || copied.Fields["since"] != nil {
			wrong = fmt.Sprintf("%v is copied as %v", doc.Fields, copied.Fields)
		}
	}
	for range 400 {
		p := &processes[chance.IntN(len(processes))]
		idle := !slices.ContainsFunc(processes[:], func(p dedupetest.Worker) bool { return p.Running })
		switch does := chance.IntN(40); {
		case p.Running && does < 5:
			p.Step(dedupetest.Fates[chance.IntN(len(dedupetest.Fates))])
		case p.Running:
			p.Step(dedupetest.Answered)
		case does == 0 && idle:
			for _, collection := range []string{one.Collection, mirror.Collection} {
				for _, doc := range storetest.All(t, second, collection) {
					storetest.Put(t, second, store.Delete(doc.Key, 0))
				}
			}
		default:
			from, to := &edited{Store: p.Store(first)}, &edited{Store: p.Store(second)}
			if mistake != nil {
				mistake(from, to)
			}
			m := *last
			m.Store, m.Copies = from, to
			fields := map[string]any{"uid": fmt.Sprint("u", does%2), "since": "2026"}
			p.Start(func() {
				switch does % 5 {
				case 0:
					_, _ = m.CatchUp(t.Context())
				case 1:
					_, _ = m.Commit(t.Context(), []store.Write{store.Delete(one, 0)})
				default:
					_, _ = m.Commit(t.Context(), []store.Write{store.Set(one, fields)})
				}
			})
		}
		check()
	}
	for i := range processes {
		processes[i].Settle()
	}
	require.NoError(t, filetest.ErrorOf(last.CatchUp(t.Context())))
	require.Empty(t, storetest.All(t, first, mirror.Collection))
	check()
	return wrong
}

func TestACopyEqualsItsDocumentOnceNoToDoIsLeft(t *testing.T) {
	t.Parallel()
	const seeds = 40
	for seed := range uint64(seeds) {
		require.Empty(t, play(t, seed, nil), seed)
	}
	for name, mistake := range mistakes {
		wrong := ""
		for seed := uint64(0); wrong == "" && seed < seeds; seed++ {
			wrong = play(t, seed, mistake)
		}
		require.NotEmpty(t, wrong, name)
	}
}

// It has more documents than a page, and a run that ends within one.
func TestAnEmptyOrForeignDatabaseOfCopiesIsFilled(t *testing.T) {
	t.Parallel()
	const documents, page, plenty = 1100, 500, 9999
	var left atomic.Int64
	second := &storetest.Faults{Store: storetest.Open(t)}
	second.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		if left.Add(-1) < 0 {
			return storetest.ErrFault
		}
		return do()
	}
	m, uids := mirrored(storetest.Open(t), second), map[store.Key]any{}
	for i := range documents {
		uids[store.Key{Collection: one.Collection, ID: fmt.Sprint(i)}] = fmt.Sprint("u", i)
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(uids)), store.MaxWrites) {
		storetest.Put(t, m.Store, filetest.Map(some, func(key store.Key) store.Write {
			return store.Set(key, map[string]any{"uid": uids[key]})
		})...)
	}
	storetest.Put(t, second.Store, store.Set(one, map[string]any{"uid": "of a deleted document"}))
	for _, run := range []struct {
		of       string
		commits  int64
		copies   int
		sentence string
		fails    bool
	}{
		{"first", 2 + page + 1 + 100, 0, "a copy, a page, the progress of each pass, and a part of a page", true},
		{"first", plenty, documents - page, "the rest", false},
		{"first", plenty, 0, "all is copied", false},
		{"restored", plenty, 1 + documents + documents, "all again, by the copies and by the documents", false},
	} {
		left.Store(run.commits)
		m.Of = run.of
		copies, err := m.CatchUp(t.Context())
		if require.Equal(t, run.fails, err != nil, run.sentence); err == nil {
			require.Equal(t, run.copies, copies, run.sentence)
		}
	}
	_, err := mirror.Copies{Store: second}.Get(t.Context(), one)
	require.ErrorIs(t, err, store.ErrNotFound)
	for key, uid := range uids {
		require.Equal(t, uid, storetest.Get(t, second, key).Fields["uid"])
	}

	second.Down(true)
	entry := store.Set(store.Key{Collection: "entries", ID: "1"}, nil)
	storetest.Put(t, m, store.Set(one, map[string]any{"uid": "u", "secret": "s"}), entry) // it needs no copy
	second.Down(false)
	require.Equal(t, 1, filetest.Must(m.CatchUp(t.Context()))(t))
	doc := storetest.Get(t, second, one)
	require.Equal(t, map[string]any{"uid": "u", "token": doc.Fields["token"]}, doc.Fields)
	require.Empty(t, storetest.All(t, second, "entries"))
}
