package mirror_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

var (
	members = map[string]map[string]any{"customers": {"uid": ""}}
	one     = store.Key{Collection: "customers", ID: "a~1"}
)

// actor is a process that goes on call by call. seen is what a spoiled one has read too early.
type actor struct {
	dedupetest.Worker

	seen *store.Document
}

// hooked is a store of which a case changes the calls.
type hooked struct {
	store.Store
	get    func(store.Key, func() (store.Document, error)) (store.Document, error)
	commit func([]store.Write) []store.Write
}

func (h hooked) Get(ctx context.Context, key store.Key) (store.Document, error) {
	return h.get(key, func() (store.Document, error) { return h.Store.Get(ctx, key) })
}

func (h hooked) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	return h.Store.Commit(ctx, h.commit(writes))
}

// spoiled are mistakes that the model must notice.
var spoiled = map[string]func(a *actor, first, second *hooked){
	"a copy is written whatever its version is": func(_ *actor, _, second *hooked) {
		second.commit = each(func(w store.Write) store.Write { return store.Set(w.Key, w.Fields) })
	},
	"a to-do is removed whatever its version is": func(_ *actor, first, _ *hooked) {
		first.commit = each(func(w store.Write) store.Write {
			if w.Key.Collection == mirror.Collection {
				w.Version = 0
			}
			return w
		})
	},
	"the document is read before its copy": func(a *actor, first, second *hooked) {
		second.get = func(key store.Key, get func() (store.Document, error)) (store.Document, error) {
			if key == one {
				if doc, err := store.Find(context.Background(), first.Store, key); err == nil {
					a.seen = &doc
				}
			}
			return get()
		}
		first.get = func(_ store.Key, get func() (store.Document, error)) (store.Document, error) {
			if a.seen == nil {
				return get()
			}
			if a.seen.Version == 0 {
				return store.Document{}, store.ErrNotFound
			}
			return *a.seen, nil
		}
	},
	"a to-do is removed before the copy is written": func(_ *actor, first, second *hooked) {
		second.commit = each(func(w store.Write) store.Write {
			todo := store.Key{Collection: mirror.Collection, ID: w.Key.Collection + "~" + w.Key.ID}
			if doc, err := store.Find(context.Background(), first.Store, todo); err == nil && w.Key == one && doc.Version != 0 {
				_, _ = first.Store.Commit(context.Background(), []store.Write{store.Delete(todo, doc.Version)})
			}
			return w
		})
	},
	"a copy of what is as it was has the version that it had": func(_ *actor, _, second *hooked) {
		second.commit = each(func(w store.Write) store.Write { delete(w.Fields, "token"); return w })
	},
	"a to-do that is written again has the version that it had": func(_ *actor, first, _ *hooked) {
		first.commit = each(func(w store.Write) store.Write {
			if w.Key.Collection == mirror.Collection {
				delete(w.Fields, "token")
			}
			return w
		})
	},
	"the copy of what is gone is removed": func(_ *actor, _, second *hooked) {
		second.commit = each(func(w store.Write) store.Write {
			if w.Fields["gone"] == true {
				return store.Delete(w.Key, w.Version)
			}
			return w
		})
	},
}

func each(change func(store.Write) store.Write) func([]store.Write) []store.Write {
	return func(writes []store.Write) []store.Write {
		for i, w := range writes {
			writes[i] = change(w)
		}
		return writes
	}
}

// play lets three processes change one document and catch up, in an order and with faults that follow from the seed, and
// returns what is wrong where no to-do is left.
func play(t *testing.T, dir string, seed uint64, spoil func(*actor, *hooked, *hooked)) (wrong string) {
	t.Helper()
	open := func(name string) store.Store {
		db := filetest.Must(boltstore.OpenTemporary(filepath.Join(dir, fmt.Sprint(name, seed))))(t)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	truth, copies, chance, ids := open("truth"), open("copies"), rand.New(rand.NewPCG(seed, 0)), 0
	actors := make([]*actor, 3)
	for i := range actors {
		actors[i] = &actor{}
	}
	start := func(a *actor) {
		as := func(_ store.Key, get func() (store.Document, error)) (store.Document, error) { return get() }
		same := func(writes []store.Write) []store.Write { return writes }
		first, second := &hooked{a.Store(truth), as, same}, &hooked{a.Store(copies), as, same}
		m := &mirror.Mirror{Store: first, Copies: second, Of: "truth", Members: members, NewID: func() string { ids++; return fmt.Sprint(ids) }}
		if a.seen = nil; spoil != nil {
			spoil(a, first, second)
		}
		does := chance.IntN(5)
		a.Start(func() {
			write := store.Set(one, map[string]any{"uid": fmt.Sprint("u", does%2), "since": "kept"})
			switch does {
			case 0:
				_, _ = m.CatchUp(t.Context())
				return
			case 1:
				write = store.Delete(one, 0)
			}
			_, _ = m.Commit(t.Context(), []store.Write{write}) // the other cases write two states
		})
	}
	check := func() string {
		done := store.Find
		at := filetest.Must(done(t.Context(), copies, store.Key{Collection: mirror.Collection, ID: "rebuilt"}))(t)
		if len(storetest.All(t, truth, mirror.Collection)) > 0 || at.Fields["pass"] != int64(2) {
			return ""
		}
		doc := filetest.Must(done(t.Context(), truth, one))(t)
		copied := filetest.Must(done(t.Context(), mirror.Copies{Store: copies}, one))(t)
		if doc.Fields["uid"] != copied.Fields["uid"] || copied.Fields["since"] != nil {
			return fmt.Sprintf("seed %d: %v is copied as %v", seed, doc.Fields, copied.Fields)
		}
		return ""
	}
	for range 400 {
		switch a := actors[chance.IntN(len(actors))]; {
		case a.Running:
			fate := dedupetest.Answered
			if chance.IntN(8) == 0 {
				fate = dedupetest.Fates[chance.IntN(len(dedupetest.Fates))]
			}
			a.Step(fate)
		case chance.IntN(40) == 0 && !actors[0].Running && !actors[1].Running && !actors[2].Running: // the database is lost
			for _, collection := range []string{one.Collection, mirror.Collection} {
				for _, doc := range storetest.All(t, copies, collection) {
					storetest.Put(t, copies, store.Delete(doc.Key, 0))
				}
			}
		default:
			start(a)
		}
		if wrong = check(); wrong != "" {
			break
		}
	}
	for _, a := range actors {
		a.Settle()
	}
	last := &mirror.Mirror{Store: truth, Copies: copies, Of: "truth", Members: members, NewID: func() string { ids++; return fmt.Sprint(ids) }}
	_, err := last.CatchUp(t.Context())
	require.NoError(t, err)
	require.Empty(t, storetest.All(t, truth, mirror.Collection))
	return strings.TrimSpace(wrong + check())
}

func TestWhereNoToDoIsLeftACopyIsItsDocument(t *testing.T) {
	t.Parallel()
	seeds := uint64(100)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		require.Empty(t, play(t, t.TempDir(), seed, nil))
	}
	for mistake, spoil := range spoiled {
		found := ""
		for seed := uint64(0); found == "" && seed < seeds; seed++ {
			found = play(t, t.TempDir(), seed, spoil)
		}
		require.NotEmpty(t, found, mistake)
	}
}

// TestADatabaseThatIsEmptyOrOfAnotherIsFilled has more documents than a page, and a run that ends in the middle of them.
func TestADatabaseThatIsEmptyOrOfAnotherIsFilled(t *testing.T) {
	t.Parallel()
	const documents, page = 1100, 500
	ids, left := 0, 0
	var mu sync.Mutex
	copies := &storetest.Faults{Store: storetest.Open(t)}
	m := &mirror.Mirror{Store: storetest.Open(t), Copies: copies, Of: "first", Members: members, NewID: func() string {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return fmt.Sprint(ids)
	}}
	var all []store.Write
	for i := range documents {
		all = append(all, store.Set(store.Key{Collection: one.Collection, ID: fmt.Sprint(i)}, map[string]any{"uid": fmt.Sprint("u", i)}))
	}
	for some := range slices.Chunk(all, store.MaxWrites) {
		storetest.Put(t, m.Store, some...)
	}
	storetest.Put(t, copies, store.Set(one, map[string]any{"uid": "of what is gone"}))
	copies.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		mu.Lock()
		left--
		over := left < 0
		mu.Unlock()
		if over {
			return storetest.ErrFault
		}
		return do()
	}
	fill := func(commits, made int) {
		left = commits
		n, err := m.CatchUp(t.Context())
		if commits < documents {
			require.ErrorIs(t, err, storetest.ErrFault)
			return
		}
		require.NoError(t, err)
		require.Equal(t, made, n)
	}
	fill(1+1+page+1+100, 0)           // the copy, a page, each with how far it is, and a part of the next
	fill(3*documents, documents-page) // the rest
	fill(3*documents, 0)
	m.Of = "restored"
	fill(3*documents, 1+documents+documents)

	_, err := mirror.Copies{Store: copies}.Get(t.Context(), one)
	require.ErrorIs(t, err, store.ErrNotFound)
	for i := range documents {
		require.Equal(t, fmt.Sprint("u", i), storetest.Get(t, copies, all[i].Key).Fields["uid"])
	}
	copies.Down(true)
	write := store.Set(one, map[string]any{"uid": "u", "secret": "s"})
	require.Len(t, storetest.Put(t, m, write, store.Set(store.Key{Collection: "entries", ID: "1"}, nil)), 2, "a commit stands without its copy")
	_, err = m.CatchUp(t.Context())
	require.ErrorIs(t, err, storetest.ErrFault)
	copies.Down(false)
	fill(documents, 1)
	fill(documents, 0)
	doc := storetest.Get(t, copies, one)
	require.Equal(t, map[string]any{"uid": "u", "token": doc.Fields["token"]}, doc.Fields)
}
