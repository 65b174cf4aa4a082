package tasks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// keep puts messages aside, each in a lane of its own, that are due in a second.
func (r *rig) keep(t *testing.T, count int) {
	t.Helper()
	var writes []store.Write
	for i := range count {
		kept, err := lane.Open(t.Context(), r.db, lane.Name{Queue: "again", Message: fmt.Sprint("m", i)})
		require.NoError(t, err)
		_, one, err := kept.Put(lane.Waiting{
			Topic: "again", Message: contract.Message{Data: []byte(`{}`)}, Due: start.Add(time.Second), EventID: fmt.Sprint("e", i),
		}, start)
		require.NoError(t, err)
		if writes = append(writes, one...); len(writes) >= 200 || i == count-1 {
			_, err = r.db.Commit(t.Context(), writes)
			require.NoError(t, err)
			writes = nil
		}
	}
}

// Otherwise what is over the bound would wait for the scheduler, having been asked for on time.
func TestAllThatIsDueIsReleasedByOneCallUnlessTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.keep(t, 1040)
	r.now, r.broker.down = start.Add(time.Second), true
	r.done(t, "release-delayed", `{"lanes":500,"failed":500,"published":0,"more":true,"oldest_seconds":0}`)
	r.now, r.broker.down = start.Add(time.Hour), false
	r.done(t, "release-delayed", `{"lanes":1040,"failed":0,"published":1040,"more":false,"oldest_seconds":0}`)
	require.Len(t, r.broker.taken, 1040)
}

func TestTheAlarmsReleaseIsTheTaskWithItsLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.keep(t, 2)
	r.service.ReleaseDelayed(t.Context())
	require.Empty(t, r.broker.taken)
	r.now = start.Add(time.Second)
	r.service.ReleaseDelayed(t.Context())
	require.Len(t, r.broker.taken, 2)
	require.Equal(t, 2, strings.Count(r.log.String(), `"msg":"task","task":"release-delayed","done"`), r.log.String())

	r.log.Reset()
	r.faults.FailReads(1)
	r.service.ReleaseDelayed(t.Context())
	require.Contains(t, r.log.String(), `"level":"ERROR","msg":"task","task":"release-delayed","cause":"lane: read the lanes of delayed: `)
}
