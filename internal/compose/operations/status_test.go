package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/compose/system"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
)

// doctor is a system.Doctor that returns its fields.
type doctor struct {
	found  system.Examination
	err    error
	paused map[string]pause.Pause
	// within is the time until its deadline.
	within time.Duration
}

func (d *doctor) Examine(ctx context.Context, paused map[string]pause.Pause) (system.Examination, error) {
	d.paused = paused
	if deadline, bounded := ctx.Deadline(); bounded {
		d.within = time.Until(deadline)
	}
	return d.found, d.err
}

// withDoctor is the API with a doctor, on the shipped catalog.
func (r *rig) withDoctor(t *testing.T, d system.Doctor) *catalog.Catalog {
	t.Helper()
	c := catalogtest.Shipped()
	r.deployment = &system.Deployment{
		Self: system.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one", StartedAt: at}, Doctor: d,
		Settings: []env.Setting{{Name: "OPS_TOKEN", About: "the tokens", Value: "[redacted]"}},
	}
	r.over(r.store, func(reads *events.Reads) { reads.Catalog = c })
	return c
}

func TestEachServiceIsComparedWithTheDeployment(t *testing.T) {
	t.Parallel()
	type row struct {
		deployed []string
		want     map[string]system.Agreement // by instance; the webhook service is empty
		own      system.Agreement
	}
	of := func(newest, old system.Agreement) map[string]system.Agreement {
		return map[string]system.Agreement{"new": newest, "old": old, "": newest}
	}
	filetest.Each(t, map[string]row{
		"the queues have the worker's": {
			[]string{"HASH", "HASH"}, of(system.Same, system.Differs), system.Same,
		},
		"they have another": {[]string{"00000000"}, of(system.Differs, system.Same), system.Differs},
		"they have two":     {[]string{"00000000", "HASH"}, of(system.Differs, system.Differs), system.Differs},
		"their hashes are unknown": {
			nil, of(system.Same, system.Differs), system.NotKnown,
		},
	}, func(t *testing.T, test row) {
		r, d := open(t), &doctor{found: system.Examination{Catalogs: map[string]string{}}}
		c := r.withDoctor(t, d.Examine)
		for i, hash := range test.deployed {
			d.found.Catalogs[fmt.Sprint(i)] = map[string]string{"HASH": c.Hash(), "00000000": hash}[hash]
		}
		for instance, of := range map[string]struct {
			hash, webhook string
			ago           time.Duration
		}{"new": {c.Hash(), "v1.4.0:" + c.Hash(), time.Minute}, "old": {"00000000", "", 2 * time.Minute}} {
			self := rates.Service{Name: "worker", Instance: instance, Version: "v1.4.0", Catalog: of.hash}
			self.StartedAt = at.Add(-time.Hour)
			recorder := rates.NewRecorder(rates.Config{
				Store: r.store, Now: func() time.Time { return at.Add(-of.ago) }, Self: self,
				Breakers: func() []rates.Breaker { return nil },
			})
			recorder.Release(of.webhook)
			recorder.Arrived("orders")
			require.NoError(t, recorder.Flush(t.Context()))
		}
		got := look[system.Status](t, r, "status")
		require.Equal(t, []any{c.Hash(), test.own, "v1.4.0", "[redacted]"},
			[]any{got.Catalog, got.Agreement, got.Build.Version, got.Configuration[0].Value})
		require.Len(t, got.Services, 3)
		require.EqualValues(t, 60, got.Services[0].SeenSeconds, "the newest first")
		for _, one := range got.Services {
			require.Equal(t, test.want[one.Instance], one.Agreement, one.Instance)
		}
	})
}

func TestDoctorGetsThePausesAndReportsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	missing := finding.New("topic_missing", "It is refused.", "Make it.").Of("topic", "q", "", "")
	r, d := open(t), &doctor{found: system.Examination{Unread: 3, Findings: []finding.Finding{missing}}}
	r.withDoctor(t, d.Examine)
	r.commit(t, paused("orders"))
	got := look[system.Status](t, r, "status").Doctor
	require.Equal(t, []any{d.found.Findings, 3, at}, []any{got.Findings, got.Unread, got.ExaminedAt})
	require.Contains(t, d.paused, "orders")
	require.Positive(t, d.within)
	require.LessOrEqual(t, d.within, 3*time.Second, "a page has 4 s")
	for problem, d := range map[string]system.Doctor{
		"Unavailable":        (&doctor{err: errors.New("read projects/p/topics/q: Unavailable")}).Examine,
		"nothing to compare": nil,
	} {
		r.withDoctor(t, d)
		got := look[system.Status](t, r, "status")
		require.Contains(t, got.Doctor.Problem, problem)
		require.Zero(t, got.Doctor.ExaminedAt)
		require.Equal(t, system.NotKnown, got.Agreement)
		require.NotEmpty(t, got.Configuration)
	}
}
