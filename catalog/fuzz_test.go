package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

func FuzzLoad(f *testing.F) {
	for _, dir := range []string{".", filepath.Join("testdata", "crooked"), filepath.Join("testdata", "wrong")} {
		var files [5][]byte
		for i, name := range []string{queuesFile, productsFile, sourcesFile, topicsFile, targetsFile} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			require.True(f, err == nil || name == topicsFile || name == targetsFile, err)
			files[i] = data
		}
		f.Add(files[0], files[1], files[2], files[3], files[4], []byte("{}"))
		for _, provider := range []string{"paynow", "stripe"} {
			f.Add(files[0], files[1], files[2], files[3], files[4], []byte(filetest.Read(f, "providers", provider+".yaml")))
		}
	}
	f.Add([]byte("queues: &a [*a]"), []byte("? {}\n: []"), []byte("sources: {<<: {}}"), []byte("topics: 3"), []byte("targets: {a: []}"), []byte("mappings: {a: {b: call}}"))
	f.Add([]byte("queues: [{id: [], handlers: {a: {post: {target: []}, retry_policy: {schedule: []}}}}, []]"), []byte("---\n---\n"), []byte("!!x"), []byte(""), []byte("targets: {}"), []byte("signature: {signs: '{'}\nid: [a]"))
	f.Fuzz(func(t *testing.T, queues, products, sources, topics, targets, provider []byte) {
		files := fstest.MapFS{
			queuesFile: {Data: queues}, productsFile: {Data: products}, sourcesFile: {Data: sources}, topicsFile: {Data: topics}, targetsFile: {Data: targets},
			"providers/own.yaml": {Data: provider},
		}
		c, err := load(files)
		if err != nil {
			require.NotEmpty(t, err.Error())
			_, repeated := load(files)
			require.EqualError(t, repeated, err.Error(), "the same mistakes, in the same order")
			return
		}
		taken := map[string]bool{}
		for _, q := range c.Queues {
			require.False(t, taken[q.ID] || taken[q.DeadLetter.Topic], "names are taken once")
			taken[q.ID] = true
			if !q.DeadLetter.Drop {
				taken[q.DeadLetter.Topic] = true
				require.LessOrEqual(t, len(q.DeadLetterHold()), 255)
			}
			require.LessOrEqual(t, len(q.PushSubscription()), 255)
			require.LessOrEqual(t, len(q.Filter().String()), 256)
			require.Less(t, q.HandlerTimeout, q.AckDeadline)
			require.LessOrEqual(t, q.AckDeadline, q.Lease)
			if q.Remembers() {
				require.GreaterOrEqual(t, q.RememberFor, q.MessageRetention)
				require.GreaterOrEqual(t, q.RememberFor, 72*time.Hour)
			} else {
				require.True(t, q.DeadLetter.Drop && q.MaxAttempts == 1)
			}
			minimum, maximum := q.BrokerBackoff()
			require.True(t, 0 <= minimum && minimum <= maximum && maximum <= 600*time.Second)
			for _, h := range q.Handlers {
				for _, id := range h.Emits {
					at := slices.IndexFunc(c.Queues, func(other Queue) bool { return other.ID == id })
					require.True(t, at < 0 || c.Queues[at].Enabled || !q.Enabled, "somebody takes what is emitted")
					require.True(t, at >= 0 || !q.Enabled || slices.Contains(c.OtherTopics(), id), "somebody takes what is emitted")
				}
				require.Less(t, h.Timeout, q.AckDeadline)
				require.LessOrEqual(t, h.MaxAttempts, BrokerMaxDeliveryAttempts)
				for attempt := range h.MaxAttempts {
					require.GreaterOrEqual(t, h.Backoff.Wait(attempt+1, 0.5), time.Duration(0))
				}
			}
		}
		printed := filetest.Must(c.JSON())(t)
		require.True(t, json.Valid(printed))
	})
}
