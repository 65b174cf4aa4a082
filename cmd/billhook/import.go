package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/ingest/importer"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/platform/signature"
)

type importFlags struct {
	From    string   `json:"-" query:"from" arg:"from" validate:"required,oneof=redis rabbitmq postgres"`
	Queues  []string `json:"-" query:"queues" arg:"queue=old name"`
	Type    string   `json:"-" query:"type" help:"the event type of messages that do not say theirs"`
	Member  []string `json:"-" query:"member" help:"rename a member of each message's content: old=new; old= leaves it out"`
	Failed  bool     `json:"-" query:"failed" help:"move messages that have failed, too, with all attempts again"`
	Rate    int      `json:"-" query:"rate" default:"200" help:"how many messages a second, at most; 0 is as many as the webhook service takes"`
	Yes     bool     `json:"-" query:"yes" help:"do not ask"`
	DryRun  bool     `json:"-" query:"dry-run" help:"show what would be moved, and do nothing"`
	PutBack bool     `json:"-" query:"put-back" help:"only put back what an import from Redis that was cut off has claimed"`
	Table   string   `json:"-" query:"table" default:"event_queue" help:"the table in Postgres, perhaps with its schema"`
}

// patience is how long an import waits for a webhook service that does not answer.
const patience = 5 * time.Minute

// urls are the environment variables with the old systems' addresses.
var urls = map[string]string{"redis": "REDIS_URL", "rabbitmq": "RABBITMQ_URL", "postgres": "DATABASE_URL"}

func (p *program) imports() {
	ofCatalog(p, console.Row{Name: "admin import"},
		func(ctx context.Context, c *catalog.Catalog, in importFlags) (done report, err error) {
			from := p.getenv(urls[in.From])
			if from == "" {
				return done, usageError("%s: say where the messages are", urls[in.From])
			}
			names, err := namesOf(c, in.Queues)
			members, wrong := pairs("member", in.Member)
			if err = errors.Join(err, wrong); err != nil {
				return done, err
			}
			var source importer.Source
			switch in.From {
			case "redis":
				source, err = importer.NewRedis(ctx, from, names, in.Failed, newID)
			case "rabbitmq":
				source, err = importer.NewRabbitMQ(from, names, c, in.Failed, newID)
			default:
				source, err = importer.NewPostgres(ctx, from, in.Table, c, in.Failed)
			}
			if err != nil {
				return done, err
			}
			done, err = p.drain(ctx, c, in, source, importer.Composer{Type: in.Type, Members: members})
			return done, errors.Join(err, source.Release(context.WithoutCancel(ctx)))
		})
}

// namesOf reads the arguments; without any it takes the queues with an alias. If an argument has no old name,
// the queue's alias is it.
func namesOf(c *catalog.Catalog, args []string) (names []importer.Name, err error) {
	if len(args) == 0 {
		for _, q := range c.Queues {
			if q.Alias != "" {
				args = append(args, q.ID)
			}
		}
	}
	for _, arg := range args {
		name, old, _ := strings.Cut(arg, "=")
		q, err := queue(c, name)
		if err != nil {
			return nil, err
		}
		one := importer.Name{Queue: q.ID, Source: cmp.Or(old, q.Alias)}
		if one.Source == "" {
			return nil, usageError("the queue %s had no name before: say %s=<old name>", q.ID, q.ID)
		}
		if !q.Enabled {
			one.Left = "the queue is not enabled"
		}
		names = append(names, one)
	}
	return names, nil
}

// newID makes ids that sort by the time of their creation.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// forecast is what an import would do.
type forecast struct {
	Places []importer.Place `json:"places" show:"Places"`
	// Types counts the event types of the first messages that would be moved.
	Types  deadletters.Counts `json:"types" show:"Types of the first"`
	Moved  int64              `json:"moved" show:"Would be moved"`
	Stays  int64              `json:"stays" show:"Stay"`
	Sample int                `json:"sample" show:"First looked at"`
}

// report is what an import has done.
type report struct{ importer.Report }

func (r report) Notes() []string {
	notes := []string{fmt.Sprintf("Moved: %s", deadletters.Counts(r.Queues))}
	if r.Unknown > 0 {
		const again = "%d may have been sent and stay claimed; the next import sends them under the same event ids."
		notes = append(notes, fmt.Sprintf(again, r.Unknown))
	}
	if r.Refused > 0 {
		const refused = "Refused, and where they were, of which the first %d are listed: %s"
		notes = append(notes, fmt.Sprintf(refused, len(r.Refusals), deadletters.Counts(r.Reasons)))
	}
	return notes
}

func (p *program) drain(
	ctx context.Context, c *catalog.Catalog, in importFlags, source importer.Source, compose importer.Composer,
) (done report, err error) {
	if redis, ok := source.(*importer.Redis); ok && in.PutBack {
		count, err := redis.PutBack(ctx)
		p.printf("%d messages were put back.\n", count)
		return done, errors.Join(err, p.printJSON(map[string]int{"put_back": count}))
	}
	places, messages, err := source.Look(ctx, 1000)
	if err != nil {
		return done, err
	}
	before := forecast{Places: places, Types: deadletters.Counts{}, Sample: len(messages)}
	for _, place := range places {
		if place.Left != "" {
			before.Stays += place.Count
		} else {
			before.Moved += place.Count
		}
	}
	for _, m := range messages {
		before.Types[compose.TypeOf(c, m)]++
	}
	if stop := in.DryRun || before.Moved == 0; stop || p.output == asTable { // JSON has only the outcome
		if err := p.show(console.Columns[forecast](), before); err != nil || stop {
			return done, err
		}
	}
	if err := p.confirm(in.Yes, strconv.FormatInt(before.Moved, 10), "move them"); err != nil {
		return done, err
	}
	from := c.Sources[catalog.Producers]
	to, err := p.ingest(signature.Generic, p.secrets(from.SecretVariable)[0])
	if err != nil {
		return done, fmt.Errorf("%s: %w", from.SecretVariable, err)
	}
	run := &importer.Run{
		Source: source, Send: to.Send, Catalog: c, Compose: compose, MaxBytes: from.MaxBodyBytes,
		Patience: patience, Now: time.Now, After: time.After,
		Progress: func(r importer.Report) {
			if (r.Moved+r.Refused)%1000 < 100 { // a batch is of 100 at most
				p.printf("%d moved, %d refused\n", r.Moved, r.Refused)
			}
		},
	}
	if in.Rate > 0 {
		run.Limiter = rate.NewLimiter(rate.Limit(in.Rate), max(in.Rate, 100))
	}
	if done.Report, err = run.Do(ctx); done.Refused > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages were refused, and stay where they were", done.Refused))
	}
	return done, err
}
