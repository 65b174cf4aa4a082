package catalog

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"billhook/internal/retry"
)

const (
	queuesFile   = "queues.yaml"
	productsFile = "products.yaml"
	sourcesFile  = "sources.yaml"

	queuePlace   = queuesFile + ": queue"
	topicPlace   = queuesFile + ": outbound topic"
	productPlace = productsFile + ": product"
	sourcePlace  = sourcesFile + ": source"
)

//go:embed queues.yaml products.yaml sources.yaml messages.yaml
var embedded embed.FS

// Load reads and checks the catalog: from the folder dir, or, with an empty dir, the one
// that is built in. The folder must hold all files, but messages.yaml, which is then that
// of the program. The error joins every
// mistake that was found, one a line, each with file, queue and key.
func Load(dir string) (*Catalog, error) {
	if dir == "" {
		return load(embedded)
	}
	return load(os.DirFS(dir))
}

func load(files fs.FS) (*Catalog, error) {
	c := &Catalog{Products: map[string]Product{}, Sources: map[string]Source{}}
	r := &reader{unread: map[string]bool{}}
	c.Contracts, r.mistakes = readContracts(files)
	var queues rawQueues
	haveQueues := r.file(files, queuesFile, &queues)
	if haveQueues {
		c.readQueues(r, queues)
	}
	var products rawProducts
	if r.file(files, productsFile, &products) {
		c.readProducts(r, products)
	}
	var sources rawSources
	if r.file(files, sourcesFile, &sources) {
		c.readSources(r, sources, haveQueues)
	}
	if len(r.mistakes) == 0 {
		return c, nil
	}
	// Maps are read in any order; their mistakes are told in one.
	slices.SortStableFunc(r.mistakes, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return nil, errors.Join(r.mistakes...)
}

// file reads one file into v, and reports whether it was readable as a whole.
func (r *reader) file(files fs.FS, name string, v any) bool {
	data, err := fs.ReadFile(files, name)
	var root *yaml.Node
	if err == nil {
		root, err = document(data)
	}
	if err != nil {
		r.mistakes = append(r.mistakes, fmt.Errorf("%s: %w", name, err))
		return false
	}
	return r.value(root, reflect.ValueOf(v).Elem(), name, "")
}

// The shapes of the files. A pointer is nil where the file says nothing.

type rawQueues struct {
	Defaults       rawShared    `yaml:"defaults"`
	Queues         []*yaml.Node `yaml:"queues"`
	OutboundTopics []*yaml.Node `yaml:"outbound_topics"`
}

type rawQueue struct {
	ID          string                `yaml:"id"`
	Alias       string                `yaml:"alias"`
	Description string                `yaml:"description"`
	Filter      string                `yaml:"filter"`
	OrderingKey []string              `yaml:"ordering_key"`
	Priority    string                `yaml:"priority"`
	Pool        string                `yaml:"pool"`
	Handlers    map[string]rawHandler `yaml:"handlers"`
	rawShared
}

// rawShared is what a queue may leave to the defaults.
type rawShared struct {
	Enabled           *bool         `yaml:"enabled"`
	Contract          *string       `yaml:"contract"`
	MaxAttempts       *int          `yaml:"max_attempts"`
	Backoff           rawBackoff    `yaml:"retry_policy"`
	AckDeadline       *int          `yaml:"ack_deadline_seconds"`
	HandlerTimeout    *duration     `yaml:"handler_timeout"`
	Lease             *duration     `yaml:"lease"`
	MessageTTL        *duration     `yaml:"message_ttl"`
	Retention         *duration     `yaml:"message_retention_duration"`
	RememberFor       *duration     `yaml:"remember_for"`
	Concurrency       *int          `yaml:"concurrency"`
	SlotWait          *duration     `yaml:"slot_wait"`
	MinInstances      *int          `yaml:"min_instances"`
	MaxInstances      *int          `yaml:"max_instances"`
	BacklogAlertAbove *int          `yaml:"backlog_alert_above"`
	OldestAlert       *duration     `yaml:"oldest_alert"`
	OnTerminal        *string       `yaml:"on_terminal"`
	NackBudget        *duration     `yaml:"nack_budget"`
	OnOrphan          *string       `yaml:"on_orphan"`
	OnPoison          *string       `yaml:"on_poison"`
	OnCorrected       *string       `yaml:"on_corrected"`
	FourEyes          *bool         `yaml:"four_eyes"`
	DeadLetter        rawDeadLetter `yaml:"dead_letter"`
}

type rawBackoff struct {
	Minimum    *duration   `yaml:"minimum_backoff"`
	Maximum    *duration   `yaml:"maximum_backoff"`
	Multiplier *float64    `yaml:"multiplier"`
	Jitter     *duration   `yaml:"jitter"`
	Schedule   *[]duration `yaml:"schedule"`
}

type rawHandler struct {
	Name        string     `yaml:"name"`
	Emits       []string   `yaml:"emits"`
	MaxAttempts *int       `yaml:"max_attempts"`
	Backoff     rawBackoff `yaml:"retry_policy"`
	Timeout     *duration  `yaml:"timeout"`
}

type rawDeadLetter struct {
	Drop        *bool     `yaml:"drop"`
	Topic       *string   `yaml:"topic"`
	Retention   *duration `yaml:"retention"`
	AlertAbove  *int      `yaml:"alert_above"`
	OldestAlert *duration `yaml:"oldest_alert"`
}

type rawTopic struct {
	ID          string `yaml:"id"`
	Alias       string `yaml:"alias"`
	Description string `yaml:"description"`
}

type rawProducts struct {
	Products map[string]*yaml.Node `yaml:"products"`
}

type rawProduct struct {
	Points int64 `yaml:"points"`
}

type rawSources struct {
	Sources map[string]*yaml.Node `yaml:"sources"`
}

type rawSource struct {
	Scheme         string            `yaml:"scheme"`
	SecretVariable string            `yaml:"secret_variable"`
	MaxBodyBytes   int64             `yaml:"max_body_bytes"`
	RatePerSecond  float64           `yaml:"rate_per_second"`
	Burst          int               `yaml:"burst"`
	UIDMetadataKey string            `yaml:"uid_metadata_key"`
	Events         map[string]string `yaml:"events"`
}

func (c *Catalog) readQueues(r *reader, raw rawQueues) {
	if len(raw.Queues) == 0 {
		r.wrong(queuesFile, "queues", "there is none")
	}
	backoff := r.backoff(queuesFile, "defaults.retry_policy", raw.Defaults.Backoff, retry.Policy{})
	names := map[string]string{}
	var places []string
	for i, node := range raw.Queues {
		place := placeOf(queuePlace, node, i)
		var q rawQueue
		if !r.value(node, reflect.ValueOf(&q).Elem(), place, "") {
			continue
		}
		queue := r.queue(place, q, raw.Defaults, backoff)
		r.checkQueue(place, queue)
		if c.Contracts != nil {
			r.checkContracts(place, queue, c.Contracts)
		}
		r.takeNames(names, place, "id", queue.ID)
		r.takeNames(names, place, "alias", queue.Alias)
		r.takeNames(names, place, "dead_letter.topic", queue.DeadLetter.Topic)
		c.Queues, places = append(c.Queues, queue), append(places, place)
	}
	for i, node := range raw.OutboundTopics {
		place := placeOf(topicPlace, node, i)
		var t rawTopic
		if !r.value(node, reflect.ValueOf(&t).Elem(), place, "") {
			continue
		}
		topic := OutboundTopic(t)
		r.checkTopic(place, topic)
		r.takeNames(names, place, "id", topic.ID)
		r.takeNames(names, place, "alias", topic.Alias)
		c.OutboundTopics = append(c.OutboundTopics, topic)
	}
	for i, q := range c.Queues {
		r.checkEmissions(places[i], q, c)
	}
}

// takeNames keeps topics and aliases apart: with them, all derived names differ too.
func (r *reader) takeNames(names map[string]string, place, key, name string) {
	if name == "" {
		return
	}
	if owner, taken := names[name]; taken {
		r.wrong(place, key, shown(name)+" is taken by "+owner)
		return
	}
	names[name] = place + ", " + key
}

// placeOf is how mistakes name a queue or topic: by its id, or by its number.
func placeOf(what string, node *yaml.Node, i int) string {
	for k := 0; k+1 < len(node.Content); k += 2 {
		if node.Content[k].Value == "id" && node.Content[k+1].Value != "" {
			return what + " " + shown(node.Content[k+1].Value)
		}
	}
	return fmt.Sprintf("%s number %d", what, i+1)
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

// queue returns the queue with what it leaves open taken from the defaults, backoff
// being theirs.
func (r *reader) queue(place string, q rawQueue, d rawShared, backoff retry.Policy) Queue {
	letter, refuse := q.DeadLetter, string(Refuse)
	out := Queue{
		ID: q.ID, Alias: q.Alias, Description: q.Description, Enabled: pick(q.Enabled, d.Enabled),
		Contract: pick(q.Contract, d.Contract), Filter: q.Filter, OrderingKey: q.OrderingKey,
		Priority: q.Priority, Pool: q.Pool, MaxAttempts: pick(q.MaxAttempts, d.MaxAttempts),
		Backoff: r.backoff(place, "retry_policy", q.Backoff, backoff),
		// A number of seconds that overflowed a duration could pass for a small one.
		AckDeadline:       time.Duration(max(-1, min(pick(q.AckDeadline, d.AckDeadline), 1_000_000))) * time.Second,
		Lease:             time.Duration(pick(q.Lease, d.Lease)),
		HandlerTimeout:    time.Duration(pick(q.HandlerTimeout, d.HandlerTimeout)),
		MessageTTL:        time.Duration(pick(q.MessageTTL, d.MessageTTL)),
		MessageRetention:  time.Duration(pick(q.Retention, d.Retention)),
		RememberFor:       time.Duration(pick(q.RememberFor, d.RememberFor)),
		Concurrency:       pick(q.Concurrency, d.Concurrency),
		SlotWait:          time.Duration(pick(q.SlotWait, d.SlotWait)),
		MinInstances:      pick(q.MinInstances, d.MinInstances),
		MaxInstances:      pick(q.MaxInstances, d.MaxInstances),
		BacklogAlertAbove: pick(q.BacklogAlertAbove, d.BacklogAlertAbove),
		OldestAlert:       time.Duration(pick(q.OldestAlert, d.OldestAlert)),
		OnTerminal:        OnTerminal(pick(q.OnTerminal, d.OnTerminal)),
		NackBudget:        time.Duration(pick(q.NackBudget, d.NackBudget)),
		OnOrphan:          OnOrphan(pick(q.OnOrphan, d.OnOrphan)),
		OnPoison:          OnPoison(pick(q.OnPoison, d.OnPoison)),
		OnCorrected:       OnCorrected(pick(q.OnCorrected, d.OnCorrected, &refuse)),
		FourEyes:          pick(q.FourEyes, d.FourEyes),
		Handlers:          map[string]Handler{},
	}
	if out.DeadLetter.Drop = pick(letter.Drop, d.DeadLetter.Drop); out.DeadLetter.Drop {
		if letter.Topic != nil || letter.Retention != nil || letter.AlertAbove != nil || letter.OldestAlert != nil {
			r.wrong(place, "dead_letter.drop", "a queue that drops has no topic, retention, alert_above or oldest_alert")
		}
	} else {
		derived := out.ID + "-dlq"
		out.DeadLetter = DeadLetter{
			Topic:       pick(letter.Topic, d.DeadLetter.Topic, &derived),
			Retention:   time.Duration(pick(letter.Retention, d.DeadLetter.Retention)),
			AlertAbove:  pick(letter.AlertAbove, d.DeadLetter.AlertAbove),
			OldestAlert: time.Duration(pick(letter.OldestAlert, d.DeadLetter.OldestAlert)),
		}
	}
	for eventType, h := range q.Handlers {
		timeout := duration(out.HandlerTimeout)
		out.Handlers[eventType] = Handler{
			Name: h.Name, Emits: h.Emits, MaxAttempts: pick(h.MaxAttempts, &out.MaxAttempts), Timeout: time.Duration(pick(h.Timeout, &timeout)),
			Backoff: r.backoff(place, handlerPath(eventType)+".retry_policy", h.Backoff, out.Backoff),
		}
	}
	return out
}

// backoff returns the policy with what it leaves open taken from the inherited one.
// A schedule stands for itself.
func (r *reader) backoff(place, path string, b rawBackoff, inherited retry.Policy) retry.Policy {
	grows := b.Minimum != nil || b.Maximum != nil || b.Multiplier != nil || b.Jitter != nil
	if b.Schedule == nil {
		if !grows {
			return inherited
		}
		base, most, jitter := duration(inherited.Base), duration(inherited.Max), duration(inherited.Jitter)
		return retry.Policy{
			Base: time.Duration(pick(b.Minimum, &base)), Max: time.Duration(pick(b.Maximum, &most)),
			Multiplier: pick(b.Multiplier, &inherited.Multiplier), Jitter: time.Duration(pick(b.Jitter, &jitter)),
		}
	}
	if grows {
		r.wrong(place, path, "a schedule stands alone, without the other keys")
	}
	if len(*b.Schedule) == 0 {
		r.wrong(place, path+".schedule", "lists no wait")
		return inherited
	}
	var p retry.Policy
	for _, wait := range *b.Schedule {
		p.Schedule = append(p.Schedule, time.Duration(wait))
	}
	return p
}

func (c *Catalog) readProducts(r *reader, raw rawProducts) {
	for id, node := range raw.Products { // there may be none: others are set in the store
		place := productPlace + " " + shown(id)
		var p rawProduct
		if r.value(node, reflect.ValueOf(&p).Elem(), place, "") {
			r.checkProduct(place, id, Product(p))
			c.Products[id] = Product(p)
		}
	}
}

// readSources reads the sources; haveQueues says whether the queues they name are known.
func (c *Catalog) readSources(r *reader, raw rawSources, haveQueues bool) {
	if len(raw.Sources) == 0 {
		r.wrong(sourcesFile, "sources", "there is none")
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Sources)) {
		place := sourcePlace + " " + shown(name)
		var s rawSource
		if !r.value(raw.Sources[name], reflect.ValueOf(&s).Elem(), place, "") {
			continue
		}
		source := Source{
			Name: name, Scheme: Scheme(s.Scheme), SecretVariable: s.SecretVariable, MaxBodyBytes: s.MaxBodyBytes,
			RatePerSecond: s.RatePerSecond, Burst: s.Burst, UIDMetadataKey: s.UIDMetadataKey, Events: s.Events,
		}
		r.checkSource(place, source)
		if haveQueues {
			r.checkRoutes(place, source, c)
		}
		c.Sources[name] = source
	}
}
