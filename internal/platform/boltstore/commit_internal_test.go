package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// TestConcurrentCommitsShareOneForceToTheDisk: each of them keeps its own outcome.
func TestConcurrentCommitsShareOneForceToTheDisk(t *testing.T) {
	t.Parallel()
	s := filetest.Must(Open(filepath.Join(t.TempDir(), "store.db")))(t)
	defer func() { require.NoError(t, s.Close()) }()
	key := func(id string) store.Key { return store.Key{Collection: "c", ID: id} }
	sum := store.Increment(key("sum"), map[string]int64{"n": 1}, nil)
	there := store.Create(key("there"), map[string]any{"n": int64(1)})
	require.NoError(t, filetest.ErrorOf(s.Commit(t.Context(), []store.Write{there})))
	gone, cancel := context.WithCancel(t.Context())

	var commits sync.WaitGroup
	commit := func(ctx context.Context, want error, writes ...store.Write) {
		commits.Go(func() {
			_, err := s.Commit(ctx, writes)
			require.ErrorIs(t, err, want)
		})
	}
	s.writing.Lock() // as if a caller were writing
	const sums = 10
	before := s.log.sequence
	for range sums {
		commit(t.Context(), nil, sum)
	}
	commit(t.Context(), store.ErrExists, sum, there)
	commit(t.Context(), store.ErrStale, sum, store.Replace(key("there"), 99, map[string]any{"n": int64(2)}))
	commit(gone, context.Canceled, sum)
	for waiting := 0; waiting < sums+3; runtime.Gosched() {
		s.queue.Lock()
		waiting = len(s.waiting)
		s.queue.Unlock()
	}
	cancel()
	s.writing.Unlock()
	commits.Wait()
	require.Equal(t, before+1, s.log.sequence)
	doc := filetest.Must(s.Get(t.Context(), key("sum")))(t)
	require.EqualValues(t, sums, doc.Fields["n"], "of those refused nothing is left")

	require.ErrorIs(t, filetest.ErrorOf(s.Commit(t.Context(), []store.Write{there})), store.ErrExists)
	require.Equal(t, before+1, s.log.sequence, "what is refused does not touch the disk")
}

// TestWhatIsBeingMovedToTheFileIsStillInALog copies the files while nothing can be written to one of them, as
// if the process were killed then.
func TestWhatIsBeingMovedToTheFileIsStillInALog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := filetest.Must(Open(path))(t)
	defer func() { require.NoError(t, s.Close()) }()
	s.MoveOften(3)
	commit := func(n int) (logBytes int64) {
		key := store.Key{Collection: "c", ID: fmt.Sprint(n % 10)}
		writes := []store.Write{store.Set(key, map[string]any{"n": int64(n), "text": strings.Repeat("x", 500)})}
		require.NoError(t, filetest.ErrorOf(s.Commit(t.Context(), writes)))
		for _, at := range logPaths(path) {
			logBytes += filetest.Must(os.Stat(at))(t).Size()
		}
		return logBytes
	}
	for n := range 100 {
		require.Less(t, commit(n), int64(40*leastBytes), "a log is written again from its beginning")
		<-s.moved
	}
	file := filetest.Must(s.db.Begin(true))(t)
	for n := 100; n < 111; n++ {
		commit(n)
	}
	copied := filepath.Join(t.TempDir(), "store.db")
	for i, at := range append([]string{path}, path+".log1", path+".log2") {
		to := append([]string{copied}, copied+".log1", copied+".log2")[i]
		require.NoError(t, os.WriteFile(to, []byte(filetest.Read(t, at)), 0o600))
	}
	require.NoError(t, file.Rollback())
	again := filetest.Must(Open(copied))(t)
	defer func() { require.NoError(t, again.Close()) }()
	for n := 101; n < 111; n++ {
		doc := filetest.Must(again.Get(t.Context(), store.Key{Collection: "c", ID: fmt.Sprint(n % 10)}))(t)
		require.EqualValues(t, n, doc.Fields["n"])
	}
}

// TestAStoreThatCannotWriteRefusesAllCommits: what the disk has of the first is unknown until it is opened.
func TestAStoreThatCannotWriteRefusesAllCommits(t *testing.T) {
	t.Parallel()
	s := filetest.Must(Open(filepath.Join(t.TempDir(), "store.db")))(t)
	require.NoError(t, s.log.close())
	for _, id := range []string{"a", "b"} {
		key := store.Key{Collection: "c", ID: id}
		_, err := s.Commit(t.Context(), []store.Write{store.Set(key, nil)})
		require.ErrorIs(t, err, os.ErrClosed)
		require.ErrorIs(t, filetest.ErrorOf(s.Get(t.Context(), key)), store.ErrNotFound)
	}
	require.ErrorIs(t, s.Close(), os.ErrClosed)
}

// TestALogEndsBeforeWhatIsOfEarlierUse: records 5 to 7 are over older ones, of which the store has up to 4.
func TestALogEndsBeforeWhatIsOfEarlierUse(t *testing.T) {
	t.Parallel()
	l := &logs{}
	for i := range l.files {
		l.files[i] = filetest.Must(os.Create(filepath.Join(t.TempDir(), fmt.Sprint(i))))(t)
	}
	defer func() { require.NoError(t, l.close()) }()
	for n := range 7 {
		require.NoError(t, l.append(bytes.Repeat([]byte{byte(n + 1)}, 20)))
		if n == 3 {
			l.end = 0
		}
	}
	data := []byte(filetest.Read(t, l.files[0].Name()))
	first, bodies, sound := records(data, 4)
	require.True(t, sound)
	require.EqualValues(t, 5, first)
	require.Len(t, bodies, 3)
	data[0]++ // of record 5
	_, _, sound = records(data, 4)
	require.False(t, sound, "record 6 is there")
	data = append(data[:padded(20)], data[3*padded(20):]...) // record 5, which was not written to its end, and 4
	_, bodies, sound = records(data, 4)
	require.True(t, sound)
	require.Empty(t, bodies)
}

// TestAnIndexThatIsMadeWhileOthersWriteHasWhatAScanFinds draws what happens between the parts of making one:
// documents are written, and move to the file.
func TestAnIndexThatIsMadeWhileOthersWriteHasWhatAScanFinds(t *testing.T) {
	t.Parallel()
	s, rounds := filetest.Must(OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t), 0
	defer func() { require.NoError(t, s.Close()) }()
	x := index{Equal: []string{"color"}}
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		collection := fmt.Sprint("c", rounds)
		name, settled := x.name(collection), func() error {
			s.writing.Lock()
			defer s.writing.Unlock()
			return s.settle()
		}
		others := func() {
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				key := store.Key{Collection: collection, ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")}
				fields := map[string]any{
					"color": rapid.SampledFrom([]any{"red", "blue", nil}).Draw(t, "color"), "n": rapid.Int64().Draw(t, "n"),
				}
				var err error
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					err = settled()
				case 1:
					_, err = s.Commit(t.Context(), []store.Write{store.Delete(key, 0)})
				default:
					_, err = s.Commit(t.Context(), []store.Write{store.Set(key, fields)})
				}
				require.NoError(t, err)
			}
		}
		_, err := s.Commit(t.Context(),
			[]store.Write{store.Set(store.Key{Collection: collection, ID: "a"}, map[string]any{"color": "red"})})
		require.NoError(t, cmp.Or(err, settled()))
		others()
		require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.Bucket(indexes).CreateBucket(name)
			return err
		}))
		others()
		var part []entry
		require.NoError(t, s.db.View(func(tx *bbolt.Tx) (err error) {
			part, _, err = x.extend(nil, tx, collection, []byte{})
			return err
		}))
		for _, one := range part {
			others()
			require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error { return add(tx, name, []entry{one}) }))
		}
		others()
		require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(indexes).Bucket(name).SetSequence(whole)
		}))
		others()
		require.NoError(t, settled())
		require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
			var want, got [][]byte
			page, err := s.Query(t.Context(), store.Query{Collection: collection, Limit: 9})
			for _, doc := range page.Documents {
				want = append(want, x.keys(doc.Key.ID, doc.Fields)...)
			}
			slices.SortFunc(want, bytes.Compare)
			cursor := tx.Bucket(indexes).Bucket(name).Cursor()
			for first, others := cursor.First(); first != nil; first, others = cursor.Next() {
				got = appendKeys(got, first, others)
			}
			require.Equal(t, want, got)
			return err
		}))
	})
}

// TestBlocksHaveWhatWasAddedAndNotRemoved removes many keys at once, too: that leaves empty pages behind.
func TestBlocksHaveWhatWasAddedAndNotRemoved(t *testing.T) {
	t.Parallel()
	s, rounds := filetest.Must(OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t), 0
	defer func() { require.NoError(t, s.Close()) }()
	key := func(i int) []byte { return fmt.Appendf(nil, "%04d-%s", i, strings.Repeat("x", i%90)) }
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		there, name := map[int]bool{}, fmt.Append(nil, rounds)
		for range rapid.IntRange(1, 6).Draw(t, "transactions") {
			var edits []edit
			var want [][]byte
			gone, step := rapid.Bool().Draw(t, "gone"), rapid.IntRange(1, 9).Draw(t, "step")
			from, to := rapid.IntRange(0, 1000).Draw(t, "from"), rapid.IntRange(0, 1000).Draw(t, "to")
			for i := from; i <= to; i += step {
				edits, there[i] = append(edits, edit{key(i), gone}), !gone
			}
			low, high := rapid.IntRange(0, 1000).Draw(t, "low"), rapid.IntRange(0, 1000).Draw(t, "high")
			for i := low; i < high; i++ {
				if there[i] {
					want = append(want, key(i))
				}
			}
			require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
				return write(filetest.Must(tx.Bucket(indexes).CreateBucketIfNotExists(name))(t), edits)
			}))
			require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
				bucket := tx.Bucket(indexes).Bucket(name)
				require.Equal(t, want, slices.Collect(keysFrom(bucket, key(low), key(high), false, false)))
				slices.Reverse(want)
				require.Equal(t, want, slices.Collect(keysFrom(bucket, key(low), key(high), true, false)))
				return nil
			}))
		}
	})
}

// TestAnIndexIsMadeInParts: what waits for the file does not wait for a whole index. Commits do not wait at
// all.
func TestAnIndexIsMadeInParts(t *testing.T) {
	t.Parallel()
	s, commits := filetest.Must(OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t), int64(0)
	defer func() { require.NoError(t, s.Close()) }()
	put := func(from, n int) {
		var writes []store.Write
		for i := from; i < from+n; i++ {
			key := store.Key{Collection: "c", ID: store.ID(fmt.Sprint(i))}
			writes = append(writes, store.Set(key, map[string]any{"color": fmt.Sprint(i % 7), "n": commits}))
		}
		commits++
		require.NoError(t, filetest.ErrorOf(s.Commit(t.Context(), writes)))
	}
	for from := 0; from < 100_000; from += store.MaxWrites {
		put(from, store.MaxWrites)
	}
	file := filetest.Must(s.db.Begin(true))(t)
	for from := 0; from < (mostRecent+3)*movedAtOnce/leastBytes; from += store.MaxWrites {
		put(from, store.MaxWrites)
	}
	require.NoError(t, file.Rollback())
	require.NoError(t, s.settle())
	written := func() (transactions, pages int64) {
		require.NoError(t, s.db.View(func(tx *bbolt.Tx) error { transactions = int64(tx.ID()); return nil }))
		stats := s.db.Stats()
		return transactions, stats.TxStats.GetWrite()
	}
	looked, q := make(chan error), store.Query{Collection: "c", Equal: map[string]any{"color": "1"}, Limit: 9}
	go func() { looked <- filetest.ErrorOf(s.Query(t.Context(), q)) }()
	for most := int64(0); ; {
		made, pages := written()
		put(0, 1)
		if nowMade, now := written(); nowMade > made {
			most = max(most, (now-pages)/(nowMade-made))
		}
		select {
		case err := <-looked:
			require.NoError(t, err)
			require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
				pages := tx.Bucket(indexes).Bucket(indexFor(q).name("c")).Stats().LeafPageN
				require.Less(t, most, int64(pages/8), "of %d pages of the index", pages)
				return nil
			}))
			return
		default:
		}
	}
}
