package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/ingest/importer"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/platform/signature"
)

// drain moves what waits in an old system.
type drain struct {
	*program
	catalog                       *catalog.Catalog
	table                         string
	compose                       importer.Composer
	failed, putBack, yes, preview bool
	rate                          int
}

type drained interface {
	importer.Source
	// Release gives back what was refused, and ends the connection.
	Release(ctx context.Context) error
}

// patience is how long an import waits for a webhook service that does not answer.
const patience = 5 * time.Minute

// addresses are the variables of the old systems' addresses.
var addresses = map[string]string{"redis": "REDIS_URL", "rabbitmq": "RABBITMQ_URL", "postgres": "DATABASE_URL"}

func (p *program) importCommand() *cobra.Command {
	d := &drain{program: p}
	command := &cobra.Command{
		Use:   "import redis|rabbitmq|postgres [queue[=old name]...]",
		Short: "Move what waits in Redis lists, RabbitMQ queues or a Postgres queue to the webhook service, and remove what it accepts",
		Long: "A message is removed from the old system when the webhook service has accepted it. What it refuses stays where it was, and\n" +
			"is listed with the reason. An import that was cut off is started again: nothing is lost, and what is sent once more\n" +
			"has the event id that it had before. It prints what it would move, by queue and type, and asks.\n\n" +
			"Of Redis it drains the lists with their :processing, :delayed and :failed, of RabbitMQ queues over AMQP, of Postgres the table\n" +
			"of an event queue. Without a queue it looks for each queue of the catalog under its alias. The address is that of\n" +
			"REDIS_URL, RABBITMQ_URL or DATABASE_URL. The secret is the first of the generic source's variable.",
		Args: cobra.MinimumNArgs(1), ValidArgs: []string{"redis", "rabbitmq", "postgres"},
	}
	command.RunE = func(command *cobra.Command, args []string) (err error) {
		ctx := command.Context()
		if err := oneOf(command.ValidArgs, &args[0]); err != nil {
			return err
		}
		if d.catalog, err = p.catalog(); err != nil {
			return err
		}
		from := p.getenv(addresses[args[0]])
		if from == "" {
			return usageError(addresses[args[0]] + ": say where the messages are")
		}
		names, err := namesOf(d.catalog, args[1:])
		if err != nil {
			return err
		}
		var source drained
		switch args[0] {
		case "redis":
			source, err = importer.NewRedis(ctx, from, names, d.failed, newID)
		case "rabbitmq":
			source, err = importer.NewRabbitMQ(importer.Broker{Address: from, Names: names, Catalog: d.catalog, Failed: d.failed, NewID: newID, Now: time.Now})
		default:
			source, err = importer.NewPostgres(ctx, from, d.table, d.catalog, d.failed)
		}
		if err != nil {
			return err
		}
		err = d.run(ctx, command, source)
		return errors.Join(err, source.Release(context.WithoutCancel(ctx)))
	}
	flags := command.Flags()
	p.webhookFlag(command)
	flags.StringVar(&d.compose.Type, "type", "", "the event type of messages that do not say theirs")
	flags.StringToStringVar(&d.compose.Members, "member", nil, "rename a member of each message's content: old=new; old= leaves it out")
	flags.BoolVar(&d.failed, "failed", false, "move messages that have failed, too, with all attempts again")
	flags.IntVar(&d.rate, "rate", 200, "how many messages a second, at most; 0 is as many as the webhook service takes")
	flags.BoolVar(&d.yes, "yes", false, "do not ask")
	flags.BoolVar(&d.preview, "dry-run", false, "show what would be moved, and do nothing")
	flags.BoolVar(&d.putBack, "put-back", false, "only put back what an import from Redis that was cut off has claimed")
	flags.StringVar(&d.table, "table", "event_queue", "the table in Postgres, perhaps with its schema")
	return command
}

// namesOf reads the arguments; without any it is each queue with an alias. A queue that is named without its old name has
// it by its alias.
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
			return nil, usageError(fmt.Sprintf("the queue %s had no name before: say %s=<old name>", q.ID, q.ID))
		}
		if !q.Enabled {
			one.Left = "the queue is not enabled"
		}
		names = append(names, one)
	}
	return names, nil
}

// newID makes ids that sort by the time at which they were made.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// forecast is what an import would do.
type forecast struct {
	Places []importer.Place `json:"places" show:"Places"`
	// Types counts the event types of the first messages that would be moved.
	Types  map[string]int `json:"types"`
	Moved  int64          `json:"moved" show:"Would be moved"`
	Stays  int64          `json:"stays" show:"Stay"`
	Sample int            `json:"sample"`
}

func (f forecast) Notes() []string {
	return []string{fmt.Sprintf("The first %d by type: %s", f.Sample, deadletters.Counts(f.Types))}
}

// report is what an import has done.
type report struct{ importer.Report }

func (r report) Notes() []string {
	notes := []string{fmt.Sprintf("Moved: %s", deadletters.Counts(r.Queues))}
	if r.Unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d were on their way. They stay claimed; the next import sends them under the same event ids.", r.Unknown))
	}
	if r.Refused > 0 {
		notes = append(notes, fmt.Sprintf("Refused, and where they were, of which the first %d are listed: %s", len(r.Refusals), deadletters.Counts(r.Reasons)))
	}
	return notes
}

func (r report) Failure() string {
	if r.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("%d messages were refused, and stay where they were", r.Refused)
}

func (d *drain) run(ctx context.Context, command *cobra.Command, source drained) error {
	if redis, ok := source.(*importer.Redis); ok && d.putBack {
		count, err := redis.PutBack(ctx)
		d.printf("%d messages were put back.\n", count)
		return errors.Join(err, d.printJSON(map[string]int{"put_back": count}))
	}
	places, messages, err := source.Look(ctx, 1000)
	if err != nil {
		return err
	}
	before := forecast{Places: places, Types: map[string]int{}, Sample: len(messages)}
	for _, place := range places {
		if place.Left != "" {
			before.Stays += place.Count
		} else {
			before.Moved += place.Count
		}
	}
	for _, m := range messages {
		before.Types[d.compose.TypeOf(d.catalog, m)]++
	}
	if stop := d.preview || before.Moved == 0; stop || d.output == asTable { // a document is about what was done
		if err := show(d.program, before); err != nil || stop {
			return err
		}
	}
	if err := d.confirm(command.InOrStdin(), d.yes, strconv.FormatInt(before.Moved, 10), "move them"); err != nil {
		return err
	}
	from := d.catalog.Sources[catalog.Producers]
	signer, err := signature.NewSigner(signature.Generic, secretsOf(d.catalog, d.getenv)[catalog.Producers][0])
	if err != nil {
		return fmt.Errorf("%s: %w", from.SecretVariable, err)
	}
	run := &importer.Run{
		Source: source, Catalog: d.catalog, Compose: d.compose, MaxBytes: from.MaxBodyBytes, Patience: patience, Now: time.Now, After: time.After,
		Ingest: &importer.HTTPIngest{Base: strings.TrimSuffix(d.env.Webhook, "/"), Signer: signer, Client: &http.Client{Timeout: 30 * time.Second}, Now: time.Now},
	}
	run.Progress = func(r importer.Report) {
		if (r.Moved+r.Refused)%1000 < 100 { // a batch is of 100 at most
			d.printf("%d moved, %d refused\n", r.Moved, r.Refused)
		}
	}
	if d.rate > 0 {
		run.Limiter = rate.NewLimiter(rate.Limit(d.rate), max(d.rate, 100))
	}
	done, err := run.Do(ctx)
	return errors.Join(err, show(d.program, report{done}))
}
