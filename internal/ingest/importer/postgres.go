package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"billhook/catalog"
)

// Postgres is the table of an event queue. A batch is one transaction, which locks its rows, skips rows that
// others have locked, and sets the accepted ones to moved. An interrupted run changes no row.
type Postgres struct {
	connection *pgx.Conn
	catalog    *catalog.Catalog
	table      string
	columns    map[string]string
	statuses   []string
	open       pgx.Tx // holds the locks of the taken rows
	after      *int64 // the last row that was taken; nil before the first
}

// abandoned is the age at which a row in processing no longer has a worker.
const abandoned = 5 * time.Minute

// NewPostgres connects to the database at a postgres:// URL or by a connection string. Rows in failed
// and dead_letter are taken only with failed. Columns may be named next_retry_at or nextRetryAt.
func NewPostgres(ctx context.Context, url, table string, c *catalog.Catalog, failed bool) (*Postgres, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("postgres: the address is no postgres:// URL") // the error may repeat a password
	}
	config.RuntimeParams["timezone"] = "UTC" // a time without an offset is UTC
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	p := &Postgres{connection: connection, catalog: c, table: table, statuses: []string{"pending", "processing"}}
	if failed {
		p.statuses = append(p.statuses, "failed", "dead_letter")
	}
	if err := p.describe(ctx); err != nil {
		return nil, errors.Join(err, connection.Close(ctx))
	}
	return p, nil
}

func (p *Postgres) describe(ctx context.Context) error {
	rows, _ := p.connection.Query(ctx, `SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND `+
		`attnum > 0 AND NOT attisdropped`, p.quoted())
	names, err := pgx.CollectRows(rows, pgx.RowTo[string]) // with the query's error, too
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if len(names) == 0 {
		return fmt.Errorf("postgres: there is no table %s", p.table)
	}
	p.columns = map[string]string{}
	for _, name := range names {
		p.columns[strings.ToLower(strings.ReplaceAll(name, "_", ""))] = pgx.Identifier{name}.Sanitize()
	}
	for _, needed := range []string{
		"id", "type", "payload", "priority", "status", "attempts", "maxattempts", "nextretryat", "error",
		"createdat", "updatedat", "processedat",
	} {
		if p.columns[needed] == "" {
			return fmt.Errorf("postgres: the table %s has no column %s", p.table, needed)
		}
	}
	return nil
}

func (p *Postgres) quoted() string { return pgx.Identifier(strings.Split(p.table, ".")).Sanitize() }

// query inserts the names of the table and its columns: {t} and {nextretryat}.
func (p *Postgres) query(text string) string {
	pairs := []string{"{t}", p.quoted()}
	for name, column := range p.columns {
		pairs = append(pairs, "{"+name+"}", column)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// mine also selects rows that cannot be moved, to report them: no status, or in processing without a time.
const mine = `({status} IS NULL OR ({status} = ANY($1) AND
	({status} <> 'processing' OR NOT coalesce(isfinite({updatedat}), false)
	OR {updatedat} < now() - make_interval(secs => $2))))`

// Look counts the rows by status.
func (p *Postgres) Look(ctx context.Context, sample int) (places []Place, messages []Message, err error) {
	rows, _ := p.connection.Query(ctx, p.query(`SELECT coalesce({status}, ''), `+mine+`, coalesce({type}, ''),
		count(*) FROM {t}
		WHERE {status} IS NULL OR {status} NOT IN ('completed', 'moved') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`),
		p.statuses, abandoned.Seconds())
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Status string
		Taken  bool
		Type   string
		Count  int64
	}])
	if err != nil {
		return nil, nil, fmt.Errorf("postgres: %w", err)
	}
	for _, g := range groups {
		place := Place{Name: p.table + " " + g.Status, Part: partOf(g.Status), Count: g.Count}
		q, ok := p.queueOf(g.Type, "")
		switch place.Queue = q.ID; {
		case !ok:
			place.Left = "no enabled queue handles their type"
		case g.Taken:
		case g.Status == "processing":
			place.Left = "a worker may still handle them: run again in five minutes"
		case place.Part == Failed:
			place.Left = failedStay
		default:
			place.Left = "their status is not one of the event queue's"
		}
		same := slices.IndexFunc(places, func(p Place) bool { p.Count = place.Count; return p == place })
		if same < 0 {
			places = append(places, place)
			continue
		}
		places[same].Count += place.Count
	}
	messages, err = p.rows(ctx, p.query(`SELECT `+members+` FROM {t} WHERE `+mine+` ORDER BY {id} LIMIT $3`),
		p.statuses, abandoned.Seconds(), sample)
	return places, messages, err
}

// Take locks the next rows.
func (p *Postgres) Take(ctx context.Context, limit int) ([]Message, error) {
	open, err := p.connection.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	messages, err := p.rows(ctx, p.query(`SELECT `+members+` FROM {t} WHERE `+mine+` AND ($3::bigint IS NULL `+
		`OR {id} > $3) ORDER BY {id} LIMIT $4 FOR UPDATE SKIP LOCKED`),
		p.statuses, abandoned.Seconds(), p.after, limit)
	if err != nil || len(messages) == 0 {
		return nil, errors.Join(err, open.Rollback(ctx))
	}
	p.open, p.after = open, &messages[len(messages)-1].row
	return messages, nil
}

// members selects the columns of a message, and why it cannot be moved.
const members = `{id}::bigint, coalesce({type}, ''), coalesce({payload}::text, ''), coalesce({priority}, ''),
	coalesce({status}, ''), coalesce({attempts}, 0), coalesce({maxattempts}, 0),
	{nextretryat}::timestamptz, {createdat}::timestamptz, CASE
	WHEN {status} IS NULL THEN 'its status is NULL'
	WHEN {type} IS NULL THEN 'its type is NULL'
	WHEN {payload} IS NULL THEN 'its payload is NULL'
	WHEN NOT isfinite({nextretryat}::timestamptz) THEN 'the time of its next attempt is infinity'
	WHEN NOT isfinite({createdat}::timestamptz) THEN 'the time at which it was made is infinity'
	WHEN {status} = 'processing' AND NOT coalesce(isfinite({updatedat}), false)
		THEN 'it is in processing, and the time of its last change is NULL or infinity'
	ELSE '' END`

// rows reads messages, in the open transaction.
func (p *Postgres) rows(ctx context.Context, query string, arguments ...any) ([]Message, error) {
	rows, _ := p.connection.Query(ctx, query, arguments...)
	messages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Message, error) {
		m := Message{Source: p.table, Content: true}
		var priority, status string
		var due, created pgtype.Timestamptz
		err := row.Scan(&m.row, &m.Type, &m.Body, &priority, &status,
			&m.Attempts, &m.MaxAttempts, &due, &created, &m.Odd)
		m.Part, m.Due, m.Created = partOf(status), due.Time, created.Time
		m.ID = fmt.Sprintf("%s-%d", p.table, m.row)
		q, _ := p.queueOf(m.Type, priority)
		m.Queue = q.ID
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return messages, nil
}

func partOf(status string) Part {
	parts := map[string]Part{"processing": Claimed, "failed": Failed, "dead_letter": Failed}
	return cmp.Or(parts[status], Waiting)
}

// queueOf finds the queue of a type: the one for the row's priority, else another with the alias <table>:...
func (p *Postgres) queueOf(kind, priority string) (catalog.Queue, bool) {
	var found catalog.Queue
	for _, q := range p.catalog.Queues {
		if _, handled := q.Handler(kind); !handled || !q.Enabled || !strings.HasPrefix(q.Alias, p.alias()+":") {
			continue
		}
		if found.ID == "" || q.Alias == p.alias()+":"+priority {
			found = q
		}
	}
	return found, found.ID != ""
}

func (p *Postgres) alias() string { return p.table[strings.LastIndexByte(p.table, '.')+1:] }

// Settle sets accepted rows to moved, and names the event of each. The other rows do not change.
func (p *Postgres) Settle(ctx context.Context, accepted, _ []Message) error {
	ids, names := make([]int64, len(accepted)), make([]string, len(accepted))
	for i, m := range accepted {
		ids[i], names[i] = m.row, m.Queue
	}
	_, err := p.open.Exec(ctx, p.query(`UPDATE {t} SET {status} = 'moved', {processedat} = now(),
		{updatedat} = now(),
		{error} = 'moved to queue ' || moved.queue || ' as event ' || $3 || moved.id
		|| coalesce('; before: ' || {t}.{error}, '')
		FROM unnest($1::bigint[], $2::text[]) AS moved(id, queue) WHERE {t}.{id} = moved.id`),
		ids, names, p.table+"-")
	if err != nil {
		return errors.Join(fmt.Errorf("postgres: %w", err), p.open.Rollback(ctx))
	}
	if err := p.open.Commit(ctx); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// Release releases the locks of rows that are not settled, and ends the connection.
func (p *Postgres) Release(ctx context.Context) error {
	if p.open != nil {
		_ = p.open.Rollback(ctx) // it fails after Settle; the end of the connection ends any other transaction
	}
	return p.connection.Close(ctx)
}
