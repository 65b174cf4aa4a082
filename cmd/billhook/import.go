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
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/signature"
)

type drain struct {
	p *program
	// from is the address of the old system, and table that of a Postgres queue.
	from, table  string
	webhook      string
	eventType    string
	members      []string
	failed       bool
	putBack      bool
	rate         int
	patience     time.Duration
	yes, preview bool
}

type drained interface {
	importer.Source
	// Release gives back what was refused, and ends the connection.
	Release(ctx context.Context) error
}

// sampled is how many messages a preview looks into.
const sampled = 1000

func (p *program) importCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "import",
		Short: "Move what waits in Redis lists, RabbitMQ queues or a Postgres queue to the webhook service, and remove what it accepts",
		Long: "A message is removed from the old system when the webhook service has accepted it. What it refuses stays where it was, and\n" +
			"is listed with the reason. An import that was cut off is started again: nothing is lost, and what is sent once more\n" +
			"has the event id that it had before. Each prints what it would move, by queue and type, and asks.",
	}
	command.AddCommand(
		p.importFrom("redis", "REDIS_URL", "Drain Redis lists with their :processing, :delayed and :failed", func(ctx context.Context, d *drain, _ *catalog.Catalog, names []importer.Name) (drained, error) {
			return importer.NewRedis(ctx, d.from, names, d.failed, newID)
		}),
		p.importFrom("rabbitmq", "RABBITMQ_URL", "Drain RabbitMQ queues over AMQP", func(_ context.Context, d *drain, c *catalog.Catalog, names []importer.Name) (drained, error) {
			return importer.NewRabbitMQ(importer.Broker{Address: d.from, Names: names, Catalog: c, Failed: d.failed, NewID: newID, Now: time.Now})
		}),
		p.importFrom("postgres", "DATABASE_URL", "Drain the table of a Postgres event queue", func(ctx context.Context, d *drain, c *catalog.Catalog, _ []importer.Name) (drained, error) {
			return importer.NewPostgres(ctx, d.from, d.table, c, d.failed)
		}),
	)
	return command
}

// importFrom is the command for one system. variable has its address where --from is not given.
func (p *program) importFrom(system, variable, short string, open func(context.Context, *drain, *catalog.Catalog, []importer.Name) (drained, error)) *cobra.Command {
	d := &drain{p: p}
	command := &cobra.Command{Use: system, Short: short, Args: cobra.NoArgs}
	if system != "postgres" {
		command.Use += " [queue[=old name]...]"
		command.Long = "Without a queue it looks for each queue of the catalog under its alias.\n"
		command.Args = cobra.ArbitraryArgs
	}
	command.Long = short + ".\n" + command.Long + "The address is that of --from, else of " + variable + ". The secret is the first of the generic source's variable."
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx := command.Context()
		c, err := p.catalog()
		if err != nil {
			return err
		}
		if d.from = cmp.Or(d.from, p.getenv(variable)); d.from == "" {
			return usageError(fmt.Sprintf("--from or %s: say where the messages are", variable))
		}
		names, err := namesOf(c, args)
		if err != nil {
			return err
		}
		source, err := open(ctx, d, c, names)
		if err != nil {
			return err
		}
		err = d.run(ctx, command, c, source)
		return errors.Join(err, source.Release(context.WithoutCancel(ctx)))
	}
	flags := command.Flags()
	flags.StringVar(&d.from, "from", "", "the address of the old system, with its password; better in "+variable)
	p.webhookFlag(command, &d.webhook)
	flags.StringVar(&d.eventType, "type", "", "the event type of messages that do not say theirs")
	flags.StringArrayVar(&d.members, "member", nil, "rename a member of each message's content: old=new; old= leaves it out")
	flags.BoolVar(&d.failed, "failed", false, "move messages that have failed, too, with all attempts again")
	flags.IntVar(&d.rate, "rate", 200, "how many messages a second, at most; 0 is as many as the webhook service takes")
	flags.DurationVar(&d.patience, "patience", 5*time.Minute, "how long to wait for a webhook service that does not answer")
	flags.BoolVar(&d.yes, "yes", false, "do not ask")
	flags.BoolVar(&d.preview, "dry-run", false, "show what would be moved, and do nothing")
	switch system {
	case "redis":
		flags.BoolVar(&d.putBack, "put-back", false, "only put back what an import that was cut off has claimed")
	case "postgres":
		flags.StringVar(&d.table, "table", "event_queue", "the table, perhaps with its schema")
	}
	return command
}

// namesOf reads the arguments. A queue that is named without its old name has it by its alias.
func namesOf(c *catalog.Catalog, args []string) (names []importer.Name, err error) {
	for _, arg := range args {
		name, old, _ := strings.Cut(arg, "=")
		q, ok := c.Queue(name)
		switch {
		case !ok:
			return nil, unknownQueue(c, name)
		case !q.Enabled:
			return nil, usageError(fmt.Sprintf("the queue %s is not enabled", q.ID))
		case cmp.Or(old, q.Alias) == "":
			return nil, usageError(fmt.Sprintf("the queue %s had no name before: say %s=<old name>", q.ID, q.ID))
		}
		names = append(names, importer.Name{Queue: q.ID, Source: cmp.Or(old, q.Alias)})
	}
	for _, q := range c.Queues {
		if len(args) > 0 || q.Alias == "" {
			continue
		}
		name := importer.Name{Queue: q.ID, Source: q.Alias}
		if !q.Enabled {
			name.Left = "the queue is not enabled"
		}
		names = append(names, name)
	}
	return names, nil
}

// newID makes ids that sort by the time at which they were made.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

type forecast struct {
	Places []importer.Place `json:"places"`
	// Types counts the event types of the first messages that would be moved.
	Types  map[string]int `json:"types"`
	Moved  int64          `json:"moved"`
	Stays  int64          `json:"stays"`
	Sample int            `json:"sample"`
}

func (d *drain) run(ctx context.Context, command *cobra.Command, c *catalog.Catalog, source drained) error {
	if redis, ok := source.(*importer.Redis); ok && d.putBack {
		count, err := redis.PutBack(ctx)
		d.p.printf("%d messages were put back.\n", count)
		return errors.Join(err, d.p.printJSON(map[string]int{"put_back": count}))
	}
	compose, err := d.composer()
	if err != nil {
		return err
	}
	before, err := d.look(ctx, c, compose, source)
	if err != nil {
		return err
	}
	if d.preview || before.Moved == 0 {
		return d.p.printJSON(before)
	}
	if err := d.p.confirm(command.InOrStdin(), d.yes, strconv.FormatInt(before.Moved, 10), "move them"); err != nil {
		return err
	}
	run, err := d.prepare(c, compose, source)
	if err != nil {
		return err
	}
	report, err := run.Do(ctx)
	d.printReport(report)
	if err == nil && report.Refused > 0 {
		err = fmt.Errorf("%d messages were refused, and stay where they were", report.Refused)
	}
	return errors.Join(err, d.p.printJSON(report))
}

func (d *drain) composer() (importer.Composer, error) {
	members := map[string]string{}
	for _, member := range d.members {
		old, renamed, ok := strings.Cut(member, "=")
		if !ok || old == "" {
			return importer.Composer{}, usageError("--member takes old=new, or old= to leave it out")
		}
		members[old] = renamed
	}
	return importer.Composer{Type: d.eventType, Members: members}, nil
}

func (d *drain) look(ctx context.Context, c *catalog.Catalog, compose importer.Composer, source importer.Source) (forecast, error) {
	places, messages, err := source.Look(ctx, sampled)
	if err != nil {
		return forecast{}, err
	}
	f := forecast{Places: places, Types: map[string]int{}, Sample: len(messages)}
	var rows [][]string
	for _, place := range places {
		becomes := "moves to " + place.Queue
		if place.Left != "" {
			becomes = "stays: " + place.Left
			f.Stays += place.Count
		} else {
			f.Moved += place.Count
		}
		rows = append(rows, row(place.Name, place.Part, place.Count, becomes))
	}
	for _, m := range messages {
		f.Types[compose.TypeOf(c, m)]++
	}
	d.p.table([]string{"OLD NAME", "PART", "MESSAGES", "WHAT BECOMES OF THEM"}, rows, nil)
	d.p.printf("%d would be moved, %d stay. The first %d by type: %s\n", f.Moved, f.Stays, f.Sample, deadletter.Counts(f.Types))
	return f, nil
}

func (d *drain) prepare(c *catalog.Catalog, compose importer.Composer, source importer.Source) (*importer.Run, error) {
	from := c.Sources[catalog.Producers]
	signer, err := signature.NewSigner(signature.Generic, secretsOf(c, d.p.getenv)[catalog.Producers][0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from.SecretVariable, err)
	}
	run := &importer.Run{
		Source: source, Catalog: c, Compose: compose, MaxBytes: from.MaxBodyBytes, Patience: d.patience, Now: time.Now, After: time.After,
		Ingest: &importer.HTTPIngest{Base: strings.TrimSuffix(d.webhook, "/"), Signer: signer, Client: &http.Client{Timeout: 30 * time.Second}, Now: time.Now},
	}
	if d.rate > 0 {
		run.Limiter = rate.NewLimiter(rate.Limit(d.rate), max(d.rate, 100))
	}
	told := 0
	run.Progress = func(r importer.Report) {
		if done := r.Moved + r.Refused; done/1000 > told/1000 {
			told = done
			d.p.printf("%d moved, %d refused\n", r.Moved, r.Refused)
		}
	}
	return run, nil
}

func (d *drain) printReport(r importer.Report) {
	d.p.printf("%d moved: %s\n", r.Moved, deadletter.Counts(r.Queues))
	if r.Unknown > 0 {
		d.p.printf("%d were on their way. They stay claimed; the next import sends them under the same event ids.\n", r.Unknown)
	}
	if r.Refused == 0 {
		return
	}
	d.p.printf("%d refused, which stay where they were: %s\n", r.Refused, deadletter.Counts(r.Reasons))
	var rows [][]string
	for _, refusal := range r.Refusals {
		rows = append(rows, row(refusal.Queue, refusal.Part, refusal.EventID, refusal.Code, cmp.Or(strings.Join(refusal.Fields, ", "), refusal.Detail)))
	}
	d.p.table([]string{"QUEUE", "PART", "EVENT", "REASON", "WHAT"}, rows, nil)
	if r.Refused > len(r.Refusals) {
		d.p.printf("These are the first %d.\n", len(r.Refusals))
	}
}
