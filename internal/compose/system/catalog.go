package system

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/inspect/pauses"
	"billhook/internal/platform/audit"
)

// Declared is a summary of this worker's catalog.
type Declared struct {
	Hash      string             `json:"hash" show:"Hash"`
	TasksPool string             `json:"tasks_pool" show:"Pool of the tasks"`
	Queues    []DeclaredQueue    `json:"queues" show:"Queues"`
	Contracts []DeclaredContract `json:"contracts" show:"Contracts"`
	Topics    []DeclaredTopic    `json:"topics" show:"Topics that no queue has to itself"`
	Sources   []DeclaredSource   `json:"sources" show:"Sources of webhooks"`
	Targets   []DeclaredTarget   `json:"targets" show:"Services that are called"`
}

// DeclaredQueue is a summary of a queue.
type DeclaredQueue struct {
	ID          string `json:"id" show:"Queue" link:"catalog/queues"`
	Alias       string `json:"alias" show:"Alias,less"`
	Description string `json:"description" show:"Description,less"`
	Enabled     bool   `json:"enabled" show:"Runs"`
	Contract    string `json:"contract" show:"Format"`
	Topic       string `json:"topic" show:"Topic,less"`
	Pool        string `json:"pool" show:"Pool"`
}

// DeclaredContract is a summary of a contract.
type DeclaredContract struct {
	// ID is, for example, message.v1:order.created:1; for the only contract of a format, the format's name.
	ID     string `json:"id" show:"Contract" link:"catalog/contracts"`
	Format string `json:"format" show:"Format,less"`
	// Type is an event type, or a pattern of event types; # matches all.
	Type    string `json:"type" show:"Event type"`
	Version int64  `json:"version" show:"Version"`
}

// DeclaredTopic is a topic that several queues share, or that others subscribe to.
type DeclaredTopic struct {
	catalog.Topic
	// Outbound: others subscribe to it, and no queue here does.
	Outbound bool `json:"outbound" show:"For others"`
}

// DeclaredSource is a sender of webhooks, with the queue of each event type that it sends.
type DeclaredSource struct {
	Name   string            `json:"name" show:"Source"`
	Scheme catalog.Scheme    `json:"scheme" show:"Signs by"`
	Events map[string]string `json:"events" show:"Sends"`
}

// DeclaredTarget is a service that handlers post to.
type DeclaredTarget struct {
	Name        string         `json:"name" show:"Target"`
	Description string         `json:"description" show:"Description,less"`
	URLVariable string         `json:"url_variable" show:"Address in"`
	Scheme      catalog.Scheme `json:"scheme" show:"Signed by"`
}

// ContractOf names a contract.
type ContractOf struct {
	ID string `json:"-" path:"id" validate:"required" help:"contract"`
}

func (a Reads) declared(context.Context, audit.Author, struct{}) (Declared, error) {
	c := a.Catalog
	found := Declared{
		Hash: c.Hash(), TasksPool: c.TasksPool, Queues: []DeclaredQueue{}, Contracts: []DeclaredContract{},
		Topics: []DeclaredTopic{}, Sources: []DeclaredSource{}, Targets: []DeclaredTarget{},
	}
	for _, q := range c.Queues {
		found.Queues = append(found.Queues, declaredInShort(q))
	}
	for _, of := range c.Contracts.All() {
		found.Contracts = append(found.Contracts, contractInShort(of))
	}
	for _, t := range c.Topics {
		found.Topics = append(found.Topics, DeclaredTopic{Topic: t})
	}
	for _, t := range c.OutboundTopics {
		found.Topics = append(found.Topics, DeclaredTopic{Topic: t, Outbound: true})
	}
	slices.SortFunc(found.Topics, func(a, b DeclaredTopic) int { return strings.Compare(a.ID, b.ID) })
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		s := c.Sources[name]
		found.Sources = append(found.Sources, DeclaredSource{Name: name, Scheme: s.Scheme, Events: s.Events})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Targets)) {
		t := c.Targets[name]
		found.Targets = append(found.Targets, DeclaredTarget{name, t.Description, t.URLVariable, t.Scheme})
	}
	return found, nil
}

func takes(q catalog.Queue, c *contract.Contract) (types []string) {
	for _, eventType := range slices.Sorted(maps.Keys(q.Handlers)) {
		if q.Contract == c.Format && routing.Overlap(routing.Pattern(eventType), routing.Pattern(c.Type)) {
			types = append(types, eventType)
		}
	}
	return types
}

func declaredInShort(q catalog.Queue) DeclaredQueue {
	return DeclaredQueue{q.ID, q.Alias, q.Description, q.Enabled, q.Contract, q.Topic(), q.Pool}
}

func contractInShort(c *contract.Contract) DeclaredContract {
	return DeclaredContract{ID: c.ID(), Format: c.Format, Type: c.Type, Version: c.Version}
}

// QueueDeclaration is the declaration of a queue.
type QueueDeclaration struct {
	DeclaredQueue

	Words      []string   `json:"words"`
	Takes      []Taken    `json:"takes" show:"What it takes"`
	ProducedBy []Producer `json:"produced_by" show:"Who produces"`
	Emits      []string   `json:"emits" show:"Its handlers publish to"`
	// Expanded is the queue as `billhook admin catalog print` prints it.
	Expanded jsontext.Value `json:"expanded" show:"As it is expanded"`
}

// Taken is an event type, or a pattern of event types, that a queue has a handler for.
type Taken struct {
	Type      string   `json:"type" show:"Event type"`
	Handler   string   `json:"handler" show:"Handler"`
	Contracts []string `json:"contracts" show:"Contracts"`
	Target    string   `json:"target,omitempty" show:"Posts to,less"`
	Path      string   `json:"path,omitempty" show:"At,less"`
}

// The kinds of producers.
const (
	ProducerSource  = "source"  // a source of webhooks
	ProducerHandler = "handler" // a handler of a queue
	ProducerInside  = "webhook" // a service of the shop, which sends to a queue or a topic
)

// Producer publishes to a queue.
type Producer struct {
	Kind string `json:"kind" show:"Kind"`
	// Name is the name of the source or handler, or the webhook service's path.
	Name  string   `json:"name" show:"Producer"`
	Queue string   `json:"queue,omitempty" show:"Handler of,less" link:"catalog/queues"`
	Types []string `json:"types,omitempty" show:"Event types,less"`
}

// Notes are the rules of the queue.
func (q QueueDeclaration) Notes() []string { return q.Words }

func (a Reads) declaredQueue(_ context.Context, _ audit.Author, in pauses.Of) (QueueDeclaration, error) {
	q, err := a.Named(in.ID)
	if err != nil {
		return QueueDeclaration{}, err
	}
	found := QueueDeclaration{
		DeclaredQueue: declaredInShort(q), Words: q.Words(), Takes: []Taken{}, Emits: []string{},
	}
	found.ProducedBy = producers(a.Catalog, q)
	for _, eventType := range slices.Sorted(maps.Keys(q.Handlers)) {
		h := q.Handlers[eventType]
		taken := Taken{Type: eventType, Handler: h.Name, Target: h.Post.Target, Path: h.Post.Path}
		taken.Contracts = []string{}
		for _, of := range a.Catalog.Contracts.All() {
			if slices.Contains(takes(q, of), eventType) {
				taken.Contracts = append(taken.Contracts, of.ID())
			}
		}
		found.Takes, found.Emits = append(found.Takes, taken), append(found.Emits, h.Emits...)
	}
	slices.Sort(found.Emits)
	found.Emits = slices.Compact(found.Emits)
	found.Expanded, err = q.JSON()
	return found, err
}

func producers(c *catalog.Catalog, q catalog.Queue) []Producer {
	all := []Producer{}
	if !q.Enabled {
		return all
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		one := Producer{Kind: ProducerSource, Name: name}
		for eventType, id := range c.Sources[name].Events {
			if id == q.ID {
				one.Types = append(one.Types, eventType)
			}
		}
		if slices.Sort(one.Types); len(one.Types) > 0 {
			all = append(all, one)
		}
	}
	for _, of := range c.Queues {
		var emits []string
		for _, h := range of.Handlers {
			if of.Enabled && (slices.Contains(h.Emits, q.ID) || slices.Contains(h.Emits, q.Topic())) {
				emits = append(emits, h.Name)
			}
		}
		slices.Sort(emits)
		for _, name := range slices.Compact(emits) {
			all = append(all, Producer{Kind: ProducerHandler, Name: name, Queue: of.ID})
		}
	}
	if _, opens := c.Sources[catalog.Producers]; opens {
		all = append(all, Producer{Kind: ProducerInside, Name: "/queues/" + q.ID + "/messages"})
		if q.SharedTopic != "" {
			all = append(all, Producer{Kind: ProducerInside, Name: "/topics/" + q.SharedTopic + "/messages"})
		}
	}
	return all
}

// ContractDeclaration is the declaration of a contract.
type ContractDeclaration struct {
	DeclaredContract

	Schema jsontext.Value `json:"schema" show:"Schema"`
	// Example is a body of the contract; null: a newer version has the example.
	Example    jsontext.Value `json:"example" show:"Example"`
	ConsumedBy []Consumer     `json:"consumed_by" show:"Who consumes"`
}

// Consumer is a queue that takes a contract.
type Consumer struct {
	Queue   string   `json:"queue" show:"Queue" link:"catalog/queues"`
	Enabled bool     `json:"enabled" show:"Runs"`
	Types   []string `json:"types" show:"Event types"`
}

var errNoContract = console.Refuse(console.Absent, "contract_unknown",
	"The catalog declares no contract of that id; GET /v1/ops/catalog lists them.")

func (a Reads) declaredContract(
	_ context.Context, _ audit.Author, in ContractOf,
) (found ContractDeclaration, err error) {
	c, ok := a.Catalog.Contracts.Contract(in.ID)
	if !ok {
		return found, errNoContract
	}
	found.DeclaredContract, found.Example, found.ConsumedBy = contractInShort(c), jsontext.Value("null"),
		[]Consumer{}
	found.Schema = a.Catalog.Contracts.Schema(c)
	if a.Example != nil && a.Catalog.Contracts.Typed(c.Format, c.Type) == c {
		if found.Example, err = a.Example(c.Format, c.Type); err != nil {
			return found, err
		}
	}
	for _, q := range a.Catalog.Queues {
		if types := takes(q, c); len(types) > 0 {
			found.ConsumedBy = append(found.ConsumedBy, Consumer{Queue: q.ID, Enabled: q.Enabled, Types: types})
		}
	}
	return found, nil
}
