package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/system"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
)

// doctor finds what it is told to find.
type doctor struct {
	found  system.Examination
	err    error
	paused map[string]pause.Pause
	// within is how long it may take.
	within time.Duration
}

func (d *doctor) Examine(ctx context.Context, paused map[string]pause.Pause) (system.Examination, error) {
	d.paused = paused
	if deadline, bounded := ctx.Deadline(); bounded {
		d.within = time.Until(deadline)
	}
	return d.found, d.err
}

// standing is the API with a doctor, on the shipped catalog.
func (r *rig) standing(t *testing.T, d system.Doctor) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	r.deployment = &system.Deployment{
		Self: system.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one", StartedAt: at}, Doctor: d,
		Settings: []env.Setting{{Name: "OPS_TOKEN", About: "the tokens", Value: "[redacted]"}},
	}
	r.over(r.store, func(reads *events.Reads) { reads.Catalog = c })
	return c
}

func (r *rig) status(t *testing.T) (got system.Status) {
	t.Helper()
	r.get(t, "status", &got)
	return got
}

func TestEachServiceIsComparedWithWhatIsDeployed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deployed []string
		want     map[string]system.Agreement // by instance; the door is empty
		own      system.Agreement
	}{
		"where the queues say it": {[]string{"HASH", "HASH"}, map[string]system.Agreement{"new": system.Same, "old": system.Differs, "": system.Same}, system.Same},
		"where they say another":  {[]string{"00000000"}, map[string]system.Agreement{"new": system.Differs, "old": system.Same, "": system.Differs}, system.Differs},
		"where they do not agree": {[]string{"00000000", "HASH"}, map[string]system.Agreement{"new": system.Differs, "old": system.Differs, "": system.Differs}, system.Differs},
		"where nobody says it":    {nil, map[string]system.Agreement{"new": system.Same, "old": system.Differs, "": system.Same}, system.NotKnown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, d := open(t), &doctor{found: system.Examination{Catalogs: map[string]string{}}}
			c := r.standing(t, d)
			for i, hash := range test.deployed {
				d.found.Catalogs[fmt.Sprint(i)] = map[string]string{"HASH": c.Hash(), "00000000": hash}[hash]
			}
			for instance, of := range map[string]struct {
				hash, door string
				ago        time.Duration
			}{"new": {c.Hash(), "v1.4.0:" + c.Hash(), time.Minute}, "old": {"00000000", "", 2 * time.Minute}} {
				recorder := rates.NewRecorder(rates.Config{
					Store: r.store, Now: func() time.Time { return at.Add(-of.ago) }, Breakers: func() []rates.Breaker { return nil },
					Self: rates.Service{Name: "worker", Instance: instance, Version: "v1.4.0", Catalog: of.hash, StartedAt: at.Add(-time.Hour)},
				})
				recorder.Release(of.door)
				recorder.Arrived("orders")
				require.NoError(t, recorder.Flush(t.Context()))
			}
			got := r.status(t)
			require.Equal(t, []any{c.Hash(), test.own, "v1.4.0", "[redacted]"}, []any{got.Catalog, got.Agreement, got.Build.Version, got.Configuration[0].Value})
			require.Len(t, got.Services, 3)
			require.EqualValues(t, 60, got.Services[0].SeenSeconds, "the newest first")
			for _, one := range got.Services {
				require.Equal(t, test.want[one.Instance], one.Agreement, one.Instance)
			}
		})
	}
}

func TestTheDoctorIsAskedWithThePauses(t *testing.T) {
	t.Parallel()
	r, d := open(t), &doctor{found: system.Examination{Unread: 3, Findings: []finding.Finding{
		finding.Of("topic", "q", finding.New("topic_missing", "It is refused.", "Make it.")),
	}}}
	r.standing(t, d)
	r.commit(t, paused("orders"))
	got := r.status(t).Doctor
	require.Equal(t, []any{d.found.Findings, 3, at}, []any{got.Findings, got.Unread, got.ExaminedAt})
	require.Contains(t, d.paused, "orders")
	require.Positive(t, d.within)
	require.LessOrEqual(t, d.within, 3*time.Second, "a page has 4")
}

func TestWhatTheDoctorCannotReadIsSaidAndTheRestIsThere(t *testing.T) {
	t.Parallel()
	for problem, d := range map[string]system.Doctor{"Unavailable": &doctor{err: errors.New("read projects/p/topics/q: Unavailable")}, "nothing to compare": nil} {
		r := open(t)
		r.standing(t, d)
		got := r.status(t)
		require.Contains(t, got.Doctor.Problem, problem)
		require.Zero(t, got.Doctor.ExaminedAt)
		require.Equal(t, system.NotKnown, got.Agreement)
		require.NotEmpty(t, got.Configuration)
	}
}
