package boltstore_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"billhook/internal/filetest"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var documents = flag.Int("store.documents", 100_000,
	"of how many documents BenchmarkFirstLook makes indexes, of at most 20 looks")

func openStore(t testing.TB) *boltstore.Store {
	t.Helper()
	s := filetest.Must(boltstore.OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestAnIncrementThatWouldOverflowIsRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	key := store.Key{Collection: "c", ID: "a"}
	storetest.Put(t, s, store.Increment(key, map[string]int64{"n": 1 << 62}, nil))
	_, err := s.Commit(t.Context(), []store.Write{store.Increment(key, map[string]int64{"n": 1 << 62}, nil)})
	require.ErrorIs(t, err, store.ErrInvalid)
}

// A child process prints each commit until it is killed: every printed one must be in the file.
func TestACommitOutlivesTheKillingOfItsProcess(t *testing.T) {
	const variable = "BOLTSTORE_TEST_CHILD"
	numbered := func(i int) store.Key { return store.Key{Collection: "c", ID: strconv.Itoa(i)} }
	if path := os.Getenv(variable); path != "" {
		s := filetest.Must(boltstore.Open(path))(t)
		for i := 0; ; i++ {
			_, err := s.Commit(t.Context(), []store.Write{
				store.Create(numbered(i), map[string]any{"n": int64(i)}),
				store.Increment(store.Key{Collection: "sums", ID: "all"}, map[string]int64{"n": 1}, nil),
			})
			require.NoError(t, err)
			require.NoError(t, filetest.ErrorOf(fmt.Fprintf(os.Stdout, "committed %d\n", i)))
		}
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	child := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^TestACommitOutlivesTheKillingOfItsProcess$")
	child.Env = append(os.Environ(), variable+"="+path)
	out := filetest.Must(child.StdoutPipe())(t)
	require.NoError(t, child.Start())
	said := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "committed ") {
			continue
		}
		if said++; said == 50 {
			require.NoError(t, child.Process.Kill()) // its output up to the kill is read below
		}
	}
	require.Error(t, child.Wait())
	require.GreaterOrEqual(t, said, 50)

	s := filetest.Must(boltstore.Open(path))(t)
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorIs(t, filetest.ErrorOf(boltstore.Open(path)), boltstore.ErrInUse)
	for i := range said {
		require.Equal(t, map[string]any{"n": int64(i)}, storetest.Get(t, s, numbered(i)).Fields)
	}
	sum := storetest.Get(t, s, store.Key{Collection: "sums", ID: "all"})
	require.Equal(t, int64(len(storetest.All(t, s, "c"))), sum.Fields["n"], "no commit is there by half")
}

func TestALongTextIsFoundByItself(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	long := strings.Repeat("x", 50_000)
	texts := map[string]string{"a": long, "b": long + "x", "c": long[:200], "d": long[:201]}
	for id, text := range texts {
		storetest.Put(t, s, store.Set(store.Key{Collection: "c", ID: id}, map[string]any{"text": text}))
	}
	for id, text := range texts {
		page, err := s.Query(t.Context(),
			store.Query{Collection: "c", Equal: map[string]any{"text": text}, Limit: 9})
		require.NoError(t, err)
		require.Len(t, page.Documents, 1)
		require.Equal(t, id, page.Documents[0].Key.ID)
	}
}

func TestADamagedStoreIsAnErrorThatNamesItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db := filetest.Must(boltstore.Open(path))(t)
	for n := range 300 {
		storetest.Put(t, db, store.Create(store.Key{Collection: "c", ID: fmt.Sprint(n)},
			map[string]any{"text": fmt.Sprintf("%0200d", n)}))
	}
	require.NoError(t, db.Close())
	sound := []byte(filetest.Read(t, path))
	damages := map[string][]byte{
		"not a store": []byte("this is not a store"), "half of it": sound[:len(sound)/2],
		"its first pages": sound[:8192],
	}
	for page := range len(sound) / 4096 {
		spoiled := append([]byte{}, sound...)
		for i := range 64 {
			spoiled[page*4096+i] = 0xff
		}
		damages[fmt.Sprint("page ", page)] = spoiled
	}
	refused := 0
	for name, text := range damages {
		at := filepath.Join(t.TempDir(), "store.db")
		require.NoError(t, os.WriteFile(at, text, 0o600))
		opened, err := boltstore.Open(at)
		if err != nil { // a page that nothing is on may be anything
			require.ErrorIs(t, err, boltstore.ErrDamaged, name)
			require.ErrorContains(t, err, at)
			refused++
			continue
		}
		require.NoError(t, opened.Close())
	}
	require.Greater(t, refused, 10)
}

func TestAStoreOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db := filetest.Must(bbolt.Open(path, 0o600, nil))(t)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return filetest.ErrorOf(tx.CreateBucket([]byte("/versions")))
	}))
	require.NoError(t, db.Close())
	require.ErrorContains(t, filetest.ErrorOf(boltstore.Open(path)),
		"of another version: "+path+" cannot be read; move it away")
}

// TestTheEmbeddedStoreFollowsEachModel: the models of dedupe and the books run on it in their own packages.
func TestTheEmbeddedStoreFollowsEachModel(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) store.Store { return openStore(t) }
	filetest.Each(t, map[string]func(*testing.T){
		"the store": func(t *testing.T) { storetest.Run(t, open) },
		"queries":   func(t *testing.T) { storetest.RunQueries(t, open) },
		"new kinds of queries while others write": func(t *testing.T) { storetest.RunMade(t, open) },
		"a query looks at what it returns": func(t *testing.T) {
			storetest.RunLooks(t, func(t *testing.T) (store.Store, func() int64) {
				t.Helper()
				s := openStore(t)
				return s, s.Looked
			})
		},
		"answers that are lost": func(t *testing.T) {
			storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
				t.Helper()
				faults := &storetest.Faults{Store: openStore(t)}
				return faults, func() { faults.FailAfter(1) }
			})
		},
	}, func(t *testing.T, run func(*testing.T)) {
		run(t)
	})
}

// BenchmarkFirstLook asks a kind of query of many documents for the first time, while others write.
func BenchmarkFirstLook(b *testing.B) {
	db := openStore(b)
	write := func(i int) store.Write {
		fields := map[string]any{
			"queue": "q", "note": strings.Repeat("x", 200), "at": time.UnixMicro(int64(i)).UTC(),
		}
		for kind := range 20 {
			fields[fmt.Sprint("kind-", kind)] = fmt.Sprint(i % (kind + 2))
		}
		return store.Set(store.Key{Collection: "c", ID: store.ID(fmt.Sprint(i))}, fields)
	}
	for from := 0; from < *documents; from += store.MaxWrites {
		var all []store.Write
		for i := range store.MaxWrites {
			all = append(all, write(from+i))
		}
		storetest.Put(b, db, all...)
	}
	// longest is the longest of the commits that are made one after the other until the end.
	longest := func(ended <-chan struct{}) (longest time.Duration, commits int) {
		for ; ; commits++ {
			select {
			case <-ended:
				return longest, commits
			default:
			}
			began := time.Now()
			storetest.Put(b, db, write(commits))
			longest = max(longest, time.Since(began))
		}
	}
	var alone, beside, looks time.Duration
	commits := 0
	for n := 0; b.Loop(); n++ {
		second, cancel := context.WithTimeout(b.Context(), time.Second)
		one, _ := longest(second.Done())
		cancel()
		alone = max(alone, one)
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			began := time.Now()
			if _, err := db.Query(b.Context(), store.Query{
				Collection: "c", Equal: map[string]any{fmt.Sprint("kind-", n%20): "1"}, Limit: 20,
			}); err != nil {
				b.Error(err)
			}
			looks += time.Since(began)
		}()
		one, made := longest(looked)
		beside, commits = max(beside, one), commits+made
	}
	b.ReportMetric(float64(alone.Microseconds())/1000, "ms/longest-commit-alone")
	b.ReportMetric(float64(beside.Microseconds())/1000, "ms/longest-commit")
	b.ReportMetric(float64(looks.Microseconds())/1000/float64(b.N), "ms/first-look")
	b.ReportMetric(float64(commits)/looks.Seconds(), "commits/s")
}
