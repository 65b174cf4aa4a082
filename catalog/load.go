package catalog

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"billhook/internal/retry"
)

//go:embed queues.yaml products.yaml sources.yaml
var embedded embed.FS

// Load reads and checks the catalog: from the folder dir, or, with an empty dir,
// the one that is built in. Every mistake is reported, each with file, queue and key.
func Load(dir string) (*Catalog, error) {
	if dir == "" {
		return load(embedded)
	}
	return load(os.DirFS(dir))
}

type rawBackoff struct {
	Minimum    *duration  `yaml:"minimum_backoff"`
	Maximum    *duration  `yaml:"maximum_backoff"`
	Multiplier *float64   `yaml:"multiplier"`
	Jitter     *duration  `yaml:"jitter"`
	Schedule   []duration `yaml:"schedule"`
}

type rawHandler struct {
	Name        string      `yaml:"name"`
	MaxAttempts *int        `yaml:"max_attempts"`
	Backoff     *rawBackoff `yaml:"retry_policy"`
	Timeout     *duration   `yaml:"timeout"`
}

type rawDeadLetter struct {
	Drop        *bool     `yaml:"drop"`
	Topic       *string   `yaml:"topic"`
	Retention   *duration `yaml:"retention"`
	AlertAbove  *int      `yaml:"alert_above"`
	OldestAlert *duration `yaml:"oldest_alert"`
}

type rawQueue struct {
	ID             string                `yaml:"id"`
	Alias          string                `yaml:"alias"`
	Description    string                `yaml:"description"`
	Enabled        *bool                 `yaml:"enabled"`
	Contract       *string               `yaml:"contract"`
	Filter         string                `yaml:"filter"`
	OrderingKey    []string              `yaml:"ordering_key"`
	Priority       string                `yaml:"priority"`
	Pool           string                `yaml:"pool"`
	Handlers       map[string]rawHandler `yaml:"handlers"`
	MaxAttempts    *int                  `yaml:"max_attempts"`
	Backoff        *rawBackoff           `yaml:"retry_policy"`
	AckDeadline    *int                  `yaml:"ack_deadline_seconds"`
	HandlerTimeout *duration             `yaml:"handler_timeout"`
	Lease          *duration             `yaml:"lease"`
	MessageTTL     *duration             `yaml:"message_ttl"`
	Retention      *duration             `yaml:"message_retention_duration"`
	RememberFor    *duration             `yaml:"remember_for"`
	Concurrency    *int                  `yaml:"concurrency"`
	MinInstances   *int                  `yaml:"min_instances"`
	MaxInstances   *int                  `yaml:"max_instances"`
	OnTerminal     *string               `yaml:"on_terminal"`
	DeadLetter     *rawDeadLetter        `yaml:"dead_letter"`
}

func load(files fs.FS) (*Catalog, error) {
	c := &Catalog{Products: map[string]Product{}, Sources: map[string]Source{}}
	var mistakes []error
	for name, read := range map[string]func(string, *yaml.Node) []error{
		"queues.yaml": c.readQueues, "products.yaml": c.readProducts, "sources.yaml": c.readSources,
	} {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", name, err))
			continue
		}
		root, ambiguous := readDocument(name, data)
		mistakes = append(mistakes, ambiguous...)
		if len(ambiguous) == 0 {
			mistakes = append(mistakes, read(name, root)...)
		}
	}
	if len(mistakes) == 0 {
		mistakes = c.check()
	}
	if len(mistakes) > 0 {
		slices.SortStableFunc(mistakes, func(a, b error) int { return compare(a.Error(), b.Error()) })
		return nil, fmt.Errorf("catalog: %w", errors.Join(mistakes...))
	}
	return c, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (c *Catalog) readQueues(file string, root *yaml.Node) []error {
	var raw struct {
		Defaults       yaml.Node   `yaml:"defaults"`
		Queues         []yaml.Node `yaml:"queues"`
		OutboundTopics []yaml.Node `yaml:"outbound_topics"`
	}
	mistakes := decode(file, root, &raw)
	var defaults rawQueue
	if raw.Defaults.Kind != 0 {
		mistakes = append(mistakes, decode(file+": defaults", &raw.Defaults, &defaults)...)
	}
	for i := range raw.Queues {
		prefix := fmt.Sprintf("%s: queue %s", file, nameOf(&raw.Queues[i], i))
		var q rawQueue
		if wrong := decode(prefix, &raw.Queues[i], &q); len(wrong) > 0 {
			mistakes = append(mistakes, wrong...)
			continue
		}
		c.Queues = append(c.Queues, q.over(defaults))
	}
	for i := range raw.OutboundTopics {
		var topic struct {
			ID          string `yaml:"id"`
			Alias       string `yaml:"alias"`
			Description string `yaml:"description"`
		}
		mistakes = append(mistakes, decode(fmt.Sprintf("%s: outbound topic %s", file, nameOf(&raw.OutboundTopics[i], i)), &raw.OutboundTopics[i], &topic)...)
		c.OutboundTopics = append(c.OutboundTopics, OutboundTopic(topic))
	}
	return mistakes
}

// nameOf is the id of a queue for messages about it, or its place.
func nameOf(node *yaml.Node, i int) string {
	for k := 0; k+1 < len(node.Content); k += 2 {
		if node.Content[k].Value == "id" {
			return quote(node.Content[k+1].Value)
		}
	}
	return fmt.Sprintf("number %d", i+1)
}

// pick returns the first value that is set, or the zero value.
func pick[T any](values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	var zero T
	return zero
}

func (b *rawBackoff) over(inherited retry.Policy) retry.Policy {
	if b == nil {
		return inherited
	}
	if len(b.Schedule) > 0 {
		p := retry.Policy{}
		for _, wait := range b.Schedule {
			p.Schedule = append(p.Schedule, time.Duration(wait))
		}
		return p
	}
	base, most, jitter := duration(inherited.Base), duration(inherited.Max), duration(inherited.Jitter)
	return retry.Policy{
		Base: time.Duration(pick(b.Minimum, &base)), Max: time.Duration(pick(b.Maximum, &most)),
		Multiplier: pick(b.Multiplier, &inherited.Multiplier), Jitter: time.Duration(pick(b.Jitter, &jitter)),
	}
}

// over returns the queue with what it leaves open taken from the defaults.
func (q rawQueue) over(d rawQueue) Queue {
	var letter, inherited rawDeadLetter
	if q.DeadLetter != nil {
		letter = *q.DeadLetter
	}
	if d.DeadLetter != nil {
		inherited = *d.DeadLetter
	}
	out := Queue{
		ID: q.ID, Alias: q.Alias, Description: q.Description, Enabled: pick(q.Enabled, d.Enabled),
		Contract: pick(q.Contract, d.Contract), Filter: q.Filter, OrderingKey: q.OrderingKey,
		Priority: q.Priority, Pool: q.Pool, MaxAttempts: pick(q.MaxAttempts, d.MaxAttempts),
		Backoff:          q.Backoff.over(d.Backoff.over(retry.Policy{})),
		AckDeadline:      time.Duration(pick(q.AckDeadline, d.AckDeadline)) * time.Second,
		Lease:            time.Duration(pick(q.Lease, d.Lease)),
		HandlerTimeout:   time.Duration(pick(q.HandlerTimeout, d.HandlerTimeout)),
		MessageTTL:       time.Duration(pick(q.MessageTTL, d.MessageTTL)),
		MessageRetention: time.Duration(pick(q.Retention, d.Retention)),
		RememberFor:      time.Duration(pick(q.RememberFor, d.RememberFor)),
		Concurrency:      pick(q.Concurrency, d.Concurrency),
		MinInstances:     pick(q.MinInstances, d.MinInstances),
		MaxInstances:     pick(q.MaxInstances, d.MaxInstances),
		OnTerminal:       OnTerminal(pick(q.OnTerminal, d.OnTerminal)),
		DeadLetter: DeadLetter{
			Drop: pick(letter.Drop, inherited.Drop), Topic: pick(letter.Topic, inherited.Topic),
			Retention:   time.Duration(pick(letter.Retention, inherited.Retention)),
			AlertAbove:  pick(letter.AlertAbove, inherited.AlertAbove),
			OldestAlert: time.Duration(pick(letter.OldestAlert, inherited.OldestAlert)),
		},
		Handlers: map[string]Handler{},
	}
	switch {
	case out.DeadLetter.Drop:
		out.DeadLetter = DeadLetter{Drop: true, Topic: pick(letter.Topic)}
	case out.DeadLetter.Topic == "":
		out.DeadLetter.Topic = q.ID + "-dlq"
	}
	for eventType, h := range q.Handlers {
		timeout := duration(out.HandlerTimeout)
		out.Handlers[eventType] = Handler{
			Name: h.Name, MaxAttempts: pick(h.MaxAttempts, &out.MaxAttempts),
			Backoff: h.Backoff.over(out.Backoff), Timeout: time.Duration(pick(h.Timeout, &timeout)),
		}
	}
	return out
}

func (c *Catalog) readProducts(file string, root *yaml.Node) []error {
	var raw struct {
		Products map[string]struct {
			Points int64 `yaml:"points"`
		} `yaml:"products"`
	}
	mistakes := decode(file, root, &raw)
	for id, product := range raw.Products {
		c.Products[id] = Product(product)
	}
	return mistakes
}

func (c *Catalog) readSources(file string, root *yaml.Node) []error {
	var raw struct {
		Sources map[string]yaml.Node `yaml:"sources"`
	}
	mistakes := decode(file, root, &raw)
	for _, name := range slices.Sorted(maps.Keys(raw.Sources)) {
		node := raw.Sources[name]
		var s struct {
			Scheme         Scheme            `yaml:"scheme"`
			SecretVariable string            `yaml:"secret_variable"`
			MaxBodyBytes   int64             `yaml:"max_body_bytes"`
			RatePerSecond  float64           `yaml:"rate_per_second"`
			Burst          int               `yaml:"burst"`
			UIDMetadataKey string            `yaml:"uid_metadata_key"`
			Events         map[string]string `yaml:"events"`
		}
		mistakes = append(mistakes, decode(fmt.Sprintf("%s: source %s", file, quote(name)), &node, &s)...)
		c.Sources[name] = Source{
			Name: name, Scheme: s.Scheme, SecretVariable: s.SecretVariable, MaxBodyBytes: s.MaxBodyBytes,
			RatePerSecond: s.RatePerSecond, Burst: s.Burst, UIDMetadataKey: s.UIDMetadataKey, Events: s.Events,
		}
	}
	return mistakes
}
