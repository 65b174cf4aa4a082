package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// doctor finds what it is told to find, and counts how often it looks.
type doctor struct {
	mu     sync.Mutex
	looks  int
	found  ops.Examination
	err    error
	paused map[string]pause.Pause
	// within is how long it may take.
	within time.Duration
}

func (d *doctor) Examine(ctx context.Context, paused map[string]pause.Pause) (ops.Examination, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks++
	d.paused = paused
	if deadline, bounded := ctx.Deadline(); bounded {
		d.within = time.Until(deadline)
	}
	return d.found, d.err
}

// standing is the API with a doctor, on the shipped catalog, and its clock.
func (r *rig) standing(t *testing.T, d ops.Doctor) (c *catalog.Catalog, now *time.Time) {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	now = new(time.Time)
	*now = at
	r.router = chi.NewRouter()
	(&ops.API{
		Reads:  ops.Reads{Store: r.store, Catalog: c, Now: func() time.Time { return *now }},
		Access: ops.Access{OpenOnLoopback: true}, Log: slog.New(slog.DiscardHandler), Doctor: d,
		Self:     ops.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one", StartedAt: at},
		Settings: []env.Setting{{Name: "OPS_TOKEN", About: "the tokens", Value: "[redacted]"}},
	}).Routes(r.router)
	return c, now
}

// seen has an instance and a release of the door be seen.
func (r *rig) seen(t *testing.T, instance, hash, door string, ago time.Duration) {
	t.Helper()
	recorder := rates.NewRecorder(rates.Config{
		Store: r.store, Now: func() time.Time { return at.Add(-ago) }, Log: slog.New(slog.DiscardHandler),
		Self:     rates.Service{Service: "worker", Instance: instance, Version: "v1.4.0", Catalog: hash, StartedAt: at.Add(-time.Hour)},
		Breakers: func() []rates.Breaker { return nil },
	})
	recorder.Door(door)
	recorder.Arrived("orders")
	require.NoError(t, recorder.Flush(t.Context()))
}

func TestEachServiceIsComparedWithWhatIsDeployed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deployed map[string]string
		want     map[string]ops.Agreement // by instance; the door is empty
		own      ops.Agreement
	}{
		"where the queues say it": {map[string]string{"a": "HASH", "b": "HASH"}, map[string]ops.Agreement{"new": ops.Same, "old": ops.Differs, "": ops.Same}, ops.Same},
		"where they say another":  {map[string]string{"a": "00000000"}, map[string]ops.Agreement{"new": ops.Differs, "old": ops.Same, "": ops.Differs}, ops.Differs},
		"where they do not agree": {map[string]string{"a": "00000000", "b": "HASH"}, map[string]ops.Agreement{"new": ops.Differs, "old": ops.Differs, "": ops.Differs}, ops.Differs},
		"where nobody says it":    {nil, map[string]ops.Agreement{"new": ops.Same, "old": ops.Differs, "": ops.Same}, ops.NotKnown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, d := open(t), &doctor{found: ops.Examination{Catalogs: map[string]string{}}}
			c, _ := r.standing(t, d)
			for queue, hash := range test.deployed {
				if hash == "HASH" {
					hash = c.Hash()
				}
				d.found.Catalogs[queue] = hash
			}
			r.seen(t, "new", c.Hash(), "v1.4.0:"+c.Hash(), time.Minute)
			r.seen(t, "old", "00000000", "", 2*time.Minute)
			var got ops.Status
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/status", nil, &got).Code)
			require.Equal(t, c.Hash(), got.Catalog)
			require.Equal(t, test.own, got.Agreement)
			require.Len(t, got.Services, 3)
			require.EqualValues(t, 60, got.Services[0].SeenSeconds, "the newest first")
			require.Equal(t, "old", got.Services[2].Instance)
			for _, one := range got.Services {
				require.Equal(t, test.want[one.Instance], one.Agreement, one.Instance)
			}
			require.Equal(t, "v1.4.0", got.Build.Version)
			require.Equal(t, "[redacted]", got.Configuration[0].Value)
		})
	}
}

func TestTheDoctorIsAskedOnceAMinuteWithThePauses(t *testing.T) {
	t.Parallel()
	r, d := open(t), &doctor{found: ops.Examination{Unread: 3, Findings: []ops.Finding{{Queue: "q", Kind: "topic", ID: "q", Code: "topic_missing", Effect: "It is refused."}}}}
	_, now := r.standing(t, d)
	r.commit(t, store.Create(store.Key{Collection: pause.Collection, ID: "orders"}, store.Encode(&pause.Pause{Queue: "orders", Who: "w", Why: "w", At: at})))
	status := func() (got ops.Status) {
		t.Helper()
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/status", nil, &got).Code)
		return got
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { r.ask(t, "/v1/ops/status", nil, nil) })
	}
	all.Wait()
	first := status()
	require.Equal(t, 1, d.looks, "of many who ask at once, too")
	require.Equal(t, d.found.Findings, first.Doctor.Findings)
	require.Equal(t, 3, first.Doctor.Unread)
	require.Equal(t, at, first.Doctor.ExaminedAt)
	require.Contains(t, d.paused, "orders")
	require.Positive(t, d.within)
	require.LessOrEqual(t, d.within, 3*time.Second, "a page has 4")
	*now = now.Add(59 * time.Second)
	require.Equal(t, at, status().Doctor.ExaminedAt)
	*now = now.Add(time.Second)
	require.Equal(t, at.Add(time.Minute), status().Doctor.ExaminedAt)
	require.Equal(t, 2, d.looks)
}

func TestWhatTheDoctorCannotReadIsSaidAndTheRestIsThere(t *testing.T) {
	t.Parallel()
	r, d := open(t), &doctor{err: errors.New("read projects/p/topics/q: Unavailable")}
	r.standing(t, d)
	var got ops.Status
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/status", nil, &got).Code)
	require.Equal(t, "read projects/p/topics/q: Unavailable", got.Doctor.Problem)
	require.Zero(t, got.Doctor.ExaminedAt)
	require.NotEmpty(t, got.Configuration)
}

func TestAWorkerWithoutABrokerOutsideSaysThatItExaminesNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.standing(t, nil)
	var got ops.Status
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/status", nil, &got).Code)
	require.Contains(t, got.Doctor.Problem, "nothing to compare")
	require.Empty(t, got.Deployed)
	require.Equal(t, ops.NotKnown, got.Agreement)
}
