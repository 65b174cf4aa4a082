package customers_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// class is a teacher before a store that counts.
type class struct {
	*customers.Teacher
	counter *storetest.Counter
	faults  *storetest.Faults
	store   store.Store
	now     time.Time
	log     bytes.Buffer
}

func newClass(t *testing.T) *class {
	t.Helper()
	db := storetest.Open(t)
	c := &class{counter: &storetest.Counter{Store: db}, now: noon}
	c.faults = &storetest.Faults{Store: c.counter}
	c.Teacher = customers.NewTeacher(c.faults, slog.New(slog.NewJSONHandler(&c.log, nil)), func() time.Time { return c.now })
	c.store = c.Watch(c.faults)
	return c
}

func (c *class) learn(t *testing.T, customer, uid string, try int) customers.Lesson {
	t.Helper()
	lesson, err := c.Learn(t.Context(), customers.Order{Tenant: "default", CustomerID: customer, UID: uid, EventID: "e1"}, try)
	require.NoError(t, err)
	return lesson
}

func (c *class) commit(t *testing.T, writes ...store.Write) {
	t.Helper()
	_, err := c.store.Commit(t.Context(), writes)
	require.NoError(t, err)
}

func TestTheFirstOrderOfACustomerWritesItsMapping(t *testing.T) {
	t.Parallel()
	c := newClass(t)
	first := c.learn(t, "c1", "u1", 0)
	require.Equal(t, []store.Write{store.Create(customers.Key("default", "c1"), map[string]any{
		"uid": "u1", "since": noon, "taught_by": "e1", "moved_points": int64(0), "tenant": "default", "customer_id": "c1", "moved_orders": int64(0),
	})}, first.Writes)
	require.Equal(t, first.Writes, c.learn(t, "c1", "u1", 0).Writes, "as long as nobody has committed it, nobody knows")
	c.commit(t, first.Writes...)
	for _, try := range []int{0, 1, 2} {
		require.Equal(t, customers.Lesson{}, c.learn(t, "c1", "u1", try))
	}
	require.Zero(t, c.counter.Gets.Load(), "nothing was read")
	c.now = noon.Add(time.Hour)
	require.NotEmpty(t, c.learn(t, "c1", "u1", 0).Writes, "what is known is not believed for ever")
}

func TestAMappingThatWasRefusedIsRead(t *testing.T) {
	t.Parallel()
	c := newClass(t)
	require.NotEmpty(t, c.learn(t, "c1", "u1", 1).Writes, "where there is none it is written still")
	require.EqualValues(t, 1, c.counter.Gets.Load())
	// Another instance has taught it.
	_, err := c.faults.Commit(t.Context(), c.learn(t, "c1", "u1", 0).Writes)
	require.NoError(t, err)
	require.Equal(t, customers.Lesson{Looked: true}, c.learn(t, "c1", "u1", 1))
	require.Equal(t, customers.Lesson{}, c.learn(t, "c1", "u1", 0), "and remembered")
	require.EqualValues(t, 2, c.counter.Gets.Load())
}

func TestAnOrderOfAnotherUserIsLoggedAndChangesNoMapping(t *testing.T) {
	t.Parallel()
	c := newClass(t)
	c.commit(t, c.learn(t, "c1", "u1", 0).Writes...)
	require.Equal(t, customers.Lesson{Differs: true, Looked: true}, c.learn(t, "c1", "u2", 0))
	require.Contains(t, c.log.String(), `"event_id":"e1","tenant":"default","customer_id":"c1","uid":"u2","mapped_uid":"u1"`)
	// A person changes it through another instance: what is known here does not accuse anybody.
	_, err := c.faults.Commit(t.Context(), []store.Write{store.Set(customers.Key("default", "c1"), map[string]any{"uid": "u2"})})
	require.NoError(t, err)
	require.Equal(t, customers.Lesson{Looked: true}, c.learn(t, "c1", "u2", 0))
	// And removes it.
	_, err = c.faults.Commit(t.Context(), []store.Write{store.Delete(customers.Key("default", "c1"), 0)})
	require.NoError(t, err)
	require.NotEmpty(t, c.learn(t, "c1", "u3", 0).Writes)
	require.NotEmpty(t, c.learn(t, "c1", "u2", 0).Writes, "what was known is forgotten")
}

func TestAMappingThatCannotBeReadIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := newClass(t)
	c.commit(t, store.Create(customers.Key("default", "c1"), map[string]any{"uid": int64(7)}))
	require.Equal(t, customers.Lesson{Differs: true, Looked: true}, c.learn(t, "c1", "u1", 1))
	c.faults.Down(true)
	_, err := c.Learn(t.Context(), customers.Order{Tenant: "default", CustomerID: "c1", UID: "u1"}, 1)
	require.ErrorIs(t, err, storetest.ErrFault, "nor taken for none where it cannot be read")
}

func TestAMappingWhoseWriteIsUncertainIsForgotten(t *testing.T) {
	t.Parallel()
	c := newClass(t)
	first := c.learn(t, "c1", "u1", 0)
	c.faults.FailAfter(1)
	_, err := c.store.Commit(t.Context(), first.Writes)
	require.ErrorIs(t, err, storetest.ErrFault)
	require.NotEmpty(t, c.learn(t, "c1", "u1", 0).Writes)
	require.Equal(t, customers.Lesson{Looked: true}, c.learn(t, "c1", "u1", 1))
	c.commit(t, store.Delete(customers.Key("default", "c1"), 0))
	require.NotEmpty(t, c.learn(t, "c1", "u1", 0).Writes, "an unlink here is known at once")
}
