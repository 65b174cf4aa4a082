package importer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/ingest/importer"
	"billhook/internal/ingest/importer/importertest"
)

// old is a Postgres with a schema for each test: the server takes longer to start than the tests.
type old struct {
	*pgx.Conn
	address string
}

// has makes a table in a new schema.
func (o old) has(t *testing.T, schema, statements string) {
	t.Helper()
	_, err := o.Exec(t.Context(),
		`CREATE SCHEMA IF NOT EXISTS `+schema+`; SET search_path TO `+schema+`;`+statements)
	require.NoError(t, err)
}

func (o old) source(t *testing.T, table string, failed bool) *importer.Postgres {
	t.Helper()
	return filetest.Must(importer.NewPostgres(t.Context(), o.address, table, everything(t), failed))(t)
}

func TestPostgresTableIsDrained(t *testing.T) {
	t.Parallel()
	connection, address := importertest.Postgres(t)
	o := old{connection, address}
	o.rowsAreMovedAndSayWhereTo(t)
	o.rowThatIsOddIsNamedAndLeftAndTheRestMoves(t)
	o.columnsMayBeNamedAsProgramsDo(t)
}

func (o old) rowsAreMovedAndSayWhereTo(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	o.has(t, "public", textOf(t, "table.sql")+textOf(t, "rows.sql"))
	worker := filetest.Must(o.Begin(ctx))(t)
	_, err := worker.Exec(ctx, `SELECT 1 FROM event_queue WHERE id = 8 FOR UPDATE`)
	require.NoError(t, err)
	s := o.source(t, "event_queue", false)
	places, messages := filetest.Both(s.Look(ctx, 10))(t)
	require.Len(t, messages, 5)
	require.ElementsMatch(t, []string{
		"1 failed stays", "1 waiting stays", "1 waiting", "2 waiting", "1 claimed stays", "1 claimed",
	}, summary(places))

	ingest := newIngest()
	cutOff(t, s, ingest)
	require.NoError(t, s.Release(ctx))
	s = o.source(t, "event_queue", true)
	report := drain(t, s, ingest)
	require.Equal(t, 4, report.Moved)
	require.Equal(t, map[string]int{"no_queue": 1}, report.Reasons)
	require.NoError(t, s.Release(ctx))
	require.Len(t, ingest.bodies, 4)
	require.Contains(t, ingest.bodies["event_queue-2"], `"attempt":2`)
	require.Equal(t, time.Date(2026, 11, 22, 13, 30, 0, 500_000_000, time.UTC), ingest.due["event_queue-2"])
	require.Contains(t, ingest.bodies["event_queue-3"], `"attempt":3`)
	require.Contains(t, ingest.bodies["event_queue-6"], `"attempt":1`)
	require.NoError(t, worker.Rollback(ctx))

	rows, err := o.Query(ctx,
		`SELECT id || ' ' || status || ' ' || coalesce(error, '-') FROM event_queue ORDER BY id`)
	require.NoError(t, err)
	lines := filetest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	require.Equal(t, []string{
		"1 moved moved to queue events-normal as event event_queue-1",
		"2 moved moved to queue events-normal as event event_queue-2; before: once",
		"3 moved moved to queue events-high as event event_queue-3",
		"4 processing -", "5 completed -",
		"6 moved moved to queue events-high as event event_queue-6; before: why",
		"7 pending -", "8 pending -",
	}, lines)
	s = o.source(t, "event_queue", false)
	require.Equal(t, 1, drain(t, s, ingest).Moved, "the row that was locked")
	require.NoError(t, s.Release(ctx))
}

func (o old) rowThatIsOddIsNamedAndLeftAndTheRestMoves(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	o.has(t, "odd", strings.ReplaceAll(textOf(t, "table.sql"), " NOT NULL", "")+textOf(t, "odd.sql"))
	s := o.source(t, "odd.event_queue", false)
	_, messages := filetest.Both(s.Look(ctx, 100))(t)
	require.Len(t, messages, 12, "all but the one that a worker may handle")
	ingest := newIngest()
	report := drain(t, s, ingest)
	require.NoError(t, s.Release(ctx))
	require.Equal(t, []string{
		"odd.event_queue--2147483648", "odd.event_queue--7", "odd.event_queue-0", "odd.event_queue-2147483647",
	}, ingest.order)
	named := map[string]string{}
	for _, refusal := range report.Refusals {
		named[strings.TrimPrefix(refusal.EventID, "odd.")] = refusal.Code + ": " + refusal.Detail
	}
	require.Equal(t, map[string]string{
		"event_queue-1": "odd: the time of its next attempt is infinity",
		"event_queue-2": "odd: the time of its next attempt is infinity",
		"event_queue-3": "odd: the time at which it was made is infinity",
		"event_queue-4": "odd: its type is NULL",
		"event_queue-5": "odd: its payload is NULL",
		"event_queue-6": "odd: its status is NULL",
		"event_queue-7": "odd: it is in processing, and the time of its last change is NULL or infinity",
		"event_queue-8": "odd: it is in processing, and the time of its last change is NULL or infinity",
	}, named)
	var left int
	require.NoError(t, o.QueryRow(ctx, `SELECT count(*) FROM event_queue WHERE status IS DISTINCT FROM 'moved'`).
		Scan(&left))
	require.Equal(t, 9, left)
}

func (o old) columnsMayBeNamedAsProgramsDo(t *testing.T) {
	t.Helper()
	renamed := textOf(t, "table.sql")
	for _, pair := range [][2]string{
		{"max_attempts", `"maxAttempts"`},
		{"next_retry_at", `"nextRetryAt"`},
		{"created_at", `"createdAt"`},
		{"updated_at", `"updatedAt"`},
		{"processed_at", `"processedAt"`},
	} {
		renamed = strings.ReplaceAll(renamed, pair[0], pair[1])
	}
	o.has(t, "named",
		renamed+`INSERT INTO event_queue (type, payload, priority) VALUES ('quota_warning', '{}', 'normal')`)
	s, ingest := o.source(t, "named.event_queue", false), newIngest()
	require.Equal(t, 1, drain(t, s, ingest).Moved)
	require.NoError(t, s.Release(t.Context()))
	require.Contains(t, ingest.bodies, "named.event_queue-1")
	_, err := importer.NewPostgres(t.Context(), o.address, "other", everything(t), false)
	require.EqualError(t, err, "postgres: there is no table other")
}
