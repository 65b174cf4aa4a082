package boltstore_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// openStore opens a store whose documents move to the file a few at a time, while others are committed.
func openStore(t testing.TB) *boltstore.Store {
	t.Helper()
	s := filetest.Must(boltstore.OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t)
	s.MoveOften(3)
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

// A child process prints each commit until it is killed, and again on the same files: every printed one must
// be there. Documents move to the file all the time.
func TestACommitOutlivesTheKillingOfItsProcess(t *testing.T) {
	const variable = "BOLTSTORE_TEST_CHILD"
	sum := store.Key{Collection: "sums", ID: "all"}
	if path := os.Getenv(variable); path != "" {
		s := filetest.Must(boltstore.Open(path))(t)
		s.MoveOften(20)
		for {
			n := len(storetest.All(t, s, "c"))
			before, _ := s.Get(t.Context(), sum) // the first time there is none
			after, err := s.Commit(t.Context(), []store.Write{
				store.Create(store.Key{Collection: "c", ID: strconv.Itoa(n)}, map[string]any{"n": int64(n)}),
				store.Increment(sum, map[string]int64{"n": 1}, nil),
			})
			require.NoError(t, err)
			require.Greater(t, after[0], before.Version, "no version comes again")
			require.NoError(t, filetest.ErrorOf(fmt.Fprintf(os.Stdout, "committed %d\n", n)))
		}
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	said := 0
	for kill := 50; kill <= 500; kill += 50 {
		child := exec.CommandContext(t.Context(), os.Args[0],
			"-test.run=^TestACommitOutlivesTheKillingOfItsProcess$")
		child.Env = append(os.Environ(), variable+"="+path)
		out := filetest.Must(child.StdoutPipe())(t)
		require.NoError(t, child.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, number := strings.CutPrefix(lines.Text(), "committed "); number {
				if said = 1 + filetest.Must(strconv.Atoi(n))(t); said >= kill {
					require.NoError(t, child.Process.Kill()) // its output up to the kill is read
				}
			}
		}
		require.Error(t, child.Wait())
		require.GreaterOrEqual(t, said, kill)
		if kill%100 != 0 {
			continue // the next process finds the logs
		}
		s := filetest.Must(boltstore.Open(path))(t)
		require.ErrorIs(t, filetest.ErrorOf(boltstore.Open(path)), boltstore.ErrInUse)
		all := storetest.All(t, s, "c")
		require.GreaterOrEqual(t, len(all), said)
		require.Equal(t, int64(len(all)), storetest.Get(t, s, sum).Fields["n"], "no commit is there by half")
		require.NoError(t, s.Close())
	}
}

// TestALogThatIsCutShortOrDamaged: what was not written to its end was not confirmed. Whatever else cannot be
// read is damage, which is never taken for the end.
func TestALogThatIsCutShortOrDamaged(t *testing.T) {
	t.Parallel()
	path, ends := filepath.Join(t.TempDir(), "store.db"), []int{}
	db := filetest.Must(boltstore.Open(path))(t)
	for n := range 3 {
		key := store.Key{Collection: "c", ID: fmt.Sprint(n)}
		storetest.Put(t, db, store.Create(key, map[string]any{"n": int64(n)}))
		ends = append(ends, len(filetest.Read(t, path+".log1")))
	}
	file, log := []byte(filetest.Read(t, path)), []byte(filetest.Read(t, path+".log1"))
	require.NoError(t, db.Close())
	open := func(log []byte) (documents int, err error) {
		at := filepath.Join(t.TempDir(), "store.db")
		require.NoError(t, os.WriteFile(at, file, 0o600))
		require.NoError(t, os.WriteFile(at+".log1", log, 0o600))
		again, err := boltstore.Open(at)
		if err != nil {
			require.ErrorIs(t, err, boltstore.ErrDamaged)
			require.ErrorContains(t, err, at+".log1")
			return 0, err
		}
		defer func() { require.NoError(t, again.Close()) }()
		return len(storetest.All(t, again, "c")), nil
	}
	for cut := range len(log) + 1 {
		whole := len(slices.DeleteFunc(slices.Clone(ends), func(end int) bool { return end > cut }))
		require.Equal(t, whole, filetest.Must(open(log[:cut]))(t), "cut at %d", cut)
	}
	for at := range log {
		damaged := slices.Clone(log)
		damaged[at] ^= 1 << (at % 8)
		documents, err := open(damaged)
		if at < ends[1] {
			require.Error(t, err, "byte %d", at)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 2, documents, "the last may not have been written to its end")
	}
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
		"its first pages": sound[:8192], "its first page": sound[:4096], "its first bytes": sound[:100],
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

func TestADiskThatIsFullIsNoDamage(t *testing.T) {
	const variable = "BILLHOOK_TEST_FULL_DISK"
	if path := os.Getenv(variable); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		most := uint64(len(filetest.Read(t, path)))
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}))
		err := filetest.ErrorOf(boltstore.Open(path))
		require.ErrorContains(t, err, syscall.EFBIG.Error())
		require.NotErrorIs(t, err, boltstore.ErrDamaged)
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, filetest.Must(bbolt.Open(path, 0o600, nil))(t).Close())
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestADiskThatIsFullIsNoDamage$")
	child.Env = append(os.Environ(), variable+"="+path)
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
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
