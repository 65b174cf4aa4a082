package catalog

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"billhook/internal/retry"
)

const (
	queuesFile   = "queues.yaml"
	topicsFile   = "topics.yaml"
	productsFile = "products.yaml"
	sourcesFile  = "sources.yaml"

	queuePlace = queuesFile + ": queue"
)

//go:embed *.yaml providers/*.yaml
var embedded embed.FS

// Load reads and checks the catalog in the folder dir, or the built-in one. A folder may lack topics.yaml,
// targets.yaml, notifications.yaml and journal.yaml. The program's own messages.yaml, limits of usage.yaml
// and providers apply if the folder has none. The error joins every Mistake; the rest is returned with it.
func Load(dir string) (*Catalog, error) {
	if dir == "" {
		return load(embedded)
	}
	return load(os.DirFS(dir))
}

func load(files fs.FS) (*Catalog, error) {
	c := &Catalog{files: files, hash: hashOf(files), Providers: map[string]Provider{}}
	r := newReader()
	c.lines = r.lines
	c.Contracts = r.readContracts(files)
	r.unread[messagesFile] = len(r.mistakes) > 0
	c.readProviders(r, files)
	names := map[string]string{}
	if file, ok := r.file(files, topicsFile, "topics"); ok {
		c.Topics = r.readTopics(file["topics"], topicsFile, "topic", names)
	}
	if file, ok := r.file(files, targetsFile, "targets", "endpoints"); ok {
		c.readTargets(r, file["targets"])
		c.readEndpoints(r, file["endpoints"])
	}
	queues, haveQueues := r.file(files, queuesFile, "tasks_pool", "defaults", "queues", "outbound_topics")
	if haveQueues {
		c.readQueues(r, queues, names)
	}
	// There may be no products: others are set in the store.
	if file, ok := r.file(files, productsFile, "products"); ok {
		c.Products = each(r, file["products"], productsFile, "products", "product",
			func(id string, p *Product, require requirer) {
				require(productID.MatchString(id), "id",
					"must be at most 128 of letters, digits and . _ : -, and begin with a letter or digit")
				within(require, "points", p.Points, 1, MaxPoints, "")
			})
	}
	if file, ok := r.file(files, sourcesFile, "sources", "accounts"); ok {
		c.readSources(r, file["sources"], haveQueues)
		c.readAccounts(r, file["accounts"], haveQueues)
	}
	if file, ok := r.file(files, notificationsFile, "notifications"); ok && haveQueues {
		c.readNotifications(r, file["notifications"])
	}
	if file, ok := r.file(files, journalFile, "unmapped", "ahead", "behind", "accounts", "rules"); haveQueues {
		if !ok {
			file = nil
		}
		c.readJournal(r, file)
	}
	c.readUsage(r, files)
	slices.SortStableFunc(r.mistakes, ByLine) // maps are read in any order
	all := make([]error, len(r.mistakes))
	for i, m := range r.mistakes {
		all[i] = m
	}
	return c, errors.Join(all...)
}

// file reads the nodes under a file's keys, and reports whether the file is YAML.
func (r *reader) file(files fs.FS, name string, keys ...string) (map[string]*yaml.Node, bool) {
	root, ok := r.root(files, name)
	if !ok {
		return nil, false
	}
	entries := r.entries(root, name, "")
	for key := range entries {
		if !slices.Contains(keys, key) {
			r.unreadable(name, join("", key), "unknown key")
		}
	}
	return entries, true
}

// root parses a file. A missing optional file is no mistake.
func (r *reader) root(files fs.FS, name string) (root *yaml.Node, ok bool) {
	data, err := fs.ReadFile(files, name)
	mayLack := []string{topicsFile, targetsFile, notificationsFile, journalFile}
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(mayLack, name) {
		return nil, false
	}
	if err == nil {
		root, err = document(data)
	}
	if err != nil {
		r.mistakes = append(r.mistakes, ofFile(name, err))
	}
	return root, err == nil
}

// list visits the maps of an optional list, each named by its kind and its id or number.
func (r *reader) list(node *yaml.Node, file, key, what string, visit func(at string, tree map[string]any)) {
	if node == nil {
		return
	}
	if wrong := ambiguity(node); wrong != "" || node.Kind != yaml.SequenceNode {
		r.unreadable(file, key, cmp.Or(wrong, "must be a list"))
		return
	}
	for i, item := range node.Content {
		place := fmt.Sprintf("%s: %s number %d", file, what, i+1)
		for k := 0; k+1 < len(item.Content); k += 2 {
			if item.Content[k].Value == "id" && item.Content[k+1].Value != "" {
				place = file + ": " + what + " " + shown(item.Content[k+1].Value)
				break
			}
		}
		r.note(place, "", item.Line)
		if tree, ok := r.branch(item, place, ""); ok {
			visit(place, tree)
		}
	}
}

func (r *reader) branch(node *yaml.Node, place, path string) (map[string]any, bool) {
	tree := r.tree(node, place, path)
	entries, ok := tree.(map[string]any)
	if tree != nil && !ok {
		r.unreadable(place, path, "must be a map")
	}
	return entries, ok
}

// each reads the entries of an optional map in the order of their keys, and leaves out those of another type.
// visit checks one, and sets what follows from its name.
func each[T any](
	r *reader, node *yaml.Node, file, key, what string, visit func(name string, value *T, require requirer),
) map[string]T {
	all := map[string]T{}
	if node == nil {
		return all
	}
	entries := r.entries(node, file, key)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		place := file + ": " + what + " " + shown(name)
		r.note(place, "", r.lines.of(file, join(key, name)))
		var value T
		if r.decode(r.tree(entries[name], place, ""), &value, place, ""); !r.unread[place+": "] {
			visit(name, &value, r.requirer(place))
			all[name] = value
		}
	}
	return all
}

type rawQueue struct {
	Queue
	AckDeadline int64 `json:"ack_deadline_seconds"`
}

// ofOneQueue lists the keys that defaults cannot have.
var ofOneQueue = []string{
	"id", "alias", "description", "topic", "bindings", "ordering_key", "priority", "pool", "handlers", "batch",
	"rate", "max_backlog",
}

func (c *Catalog) readQueues(r *reader, file map[string]*yaml.Node, names map[string]string) {
	defaults := Queue{OnCorrected: Refuse, DedupeBy: ByEventID}
	if node := file["defaults"]; node != nil {
		tree, _ := r.branch(node, queuesFile, "defaults")
		for _, key := range ofOneQueue {
			if _, set := tree[key]; set {
				r.unreadable(queuesFile, "defaults."+key, "unknown key")
				delete(tree, key)
			}
		}
		defaults = r.queue(queuesFile, "defaults", tree, defaults)
	}
	if node := file["queues"]; node == nil || len(node.Content) == 0 {
		r.wrong(queuesFile, "queues", "there is none")
	}
	var places []string
	r.list(file["queues"], queuesFile, "queues", "queue", func(place string, tree map[string]any) {
		queue := r.queue(place, "", tree, defaults)
		r.checkQueue(place, queue, c.Topics)
		if c.Contracts != nil {
			r.checkContracts(place, queue, c.Contracts)
		}
		r.takeNames(names, place, "id", queue.ID)
		r.takeNames(names, place, "alias", queue.Alias)
		r.takeNames(names, place, "id", queue.DeadLetter.Topic)
		r.takeNames(names, place, "dead_letter.aliases", queue.DeadLetter.Aliases...)
		c.Queues, places = append(c.Queues, queue), append(places, place)
	})
	c.OutboundTopics = r.readTopics(file["outbound_topics"], queuesFile, "outbound topic", names)
	posts := map[string]Post{}
	for i, q := range c.Queues {
		r.checkIfRun(places[i], q, c)
	}
	c.emitIfRun()
	for i, q := range c.Queues {
		r.checkEmissions(places[i], q, c)
		r.checkPosts(places[i], q, c, posts)
	}
	// silent has the defaults, and only what every queue must declare itself. It is ordered, because a default
	// that needs an order is for the queues that have one.
	silent := defaults
	silent.ID, silent.Description, silent.Priority, silent.Pool = "silent", "It says nothing.", "low", "silent"
	silent.Enabled, silent.OrderingKey = false, []string{"silent"}
	r.settleInherited(silent, c)
	c.readTasksPool(r, file["tasks_pool"])
}

func (c *Catalog) readTasksPool(r *reader, node *yaml.Node) {
	var file struct {
		TasksPool string `json:"tasks_pool"`
	}
	if node != nil {
		r.decode(map[string]any{"tasks_pool": r.tree(node, queuesFile, "tasks_pool")}, &file, queuesFile, "")
		if !slices.Contains(c.Pools(), file.TasksPool) {
			r.wrong(queuesFile, "tasks_pool", "no enabled queue is in pool "+shown(file.TasksPool))
		}
	}
	c.tasks.declared = file.TasksPool
	c.TasksPool = c.tasksPool(file.TasksPool)
}

func (r *reader) readTopics(node *yaml.Node, file, what string, names map[string]string) (topics []Topic) {
	key := strings.ReplaceAll(what, " ", "_") + "s"
	r.list(node, file, key, what, func(place string, tree map[string]any) {
		var topic Topic
		r.decode(tree, &topic, place, "")
		require := r.requirer(place)
		require(topicID(topic.ID), "id", topicRule)
		require(topic.Alias == "" || alias.MatchString(topic.Alias), "alias", aliasRule)
		require(topic.Description != "", "description", "is missing")
		r.takeNames(names, place, "id", topic.ID)
		r.takeNames(names, place, "alias", topic.Alias)
		topics = append(topics, topic)
	})
	return topics
}

// takeNames refuses a name that is taken: if ids and aliases differ, all derived names do.
func (r *reader) takeNames(names map[string]string, place, key string, taken ...string) {
	for _, name := range taken {
		owner, twice := names[name]
		switch {
		case name == "":
		case twice:
			r.wrong(place, key, shown(name)+" is taken by "+owner)
		default:
			names[name] = place + ", " + key
		}
	}
}

// queue returns the queue, with the defaults filled in.
func (r *reader) queue(place, path string, tree map[string]any, defaults Queue) Queue {
	handlers, handled := tree["handlers"]
	delete(tree, "handlers")
	backoff := r.backoff(place, path, tree, defaults.Backoff)
	dead, _ := tree["dead_letter"].(map[string]any)
	_, drops := dead["drop"]
	keeps := len(dead) > 1 || (len(dead) == 1 && !drops)

	raw := rawQueue{Queue: defaults, AckDeadline: int64(defaults.AckDeadline / time.Second)}
	raw.DeadLetter.Aliases = slices.Clone(defaults.DeadLetter.Aliases)
	r.decode(tree, &raw, place, path)
	q := raw.Queue
	q.Backoff, q.Handlers = backoff, map[string]Handler{}
	// A number of seconds that overflowed a duration could pass for a small one.
	q.AckDeadline = time.Duration(max(-1, min(raw.AckDeadline, 1_000_000))) * time.Second
	switch {
	case path != "": // the defaults
	case q.DeadLetter.Drop:
		if keeps {
			r.wrong(place, "dead_letter.drop", "a queue that drops has no aliases, retention, alerts or warnings")
		}
		q.DeadLetter = DeadLetter{Drop: true}
	default:
		q.DeadLetter.Topic = q.ID + "-dlq"
	}
	entries, ok := handlers.(map[string]any)
	if handled && !ok {
		r.unreadable(place, "handlers", "must be a map")
	}
	for eventType, entry := range entries {
		at := handlerPath(eventType)
		h := Handler{MaxAttempts: q.MaxAttempts, Timeout: q.HandlerTimeout, Backoff: q.Backoff}
		if own, ok := entry.(map[string]any); ok {
			h.Backoff = r.backoff(place, at, own, q.Backoff)
		}
		r.decode(entry, &h, place, at)
		if h.Post != (Post{}) {
			if h.Name != "" {
				r.wrong(place, at+".post", "stands in the place of name, not beside it")
			}
			h.Name = h.Post.handler()
		}
		q.Handlers[eventType] = h
	}
	return q
}

// backoff takes the policy out of the tree. Unless it is a schedule, the inherited one fills its gaps.
func (r *reader) backoff(place, path string, tree map[string]any, inherited retry.Policy) retry.Policy {
	own, ok := tree["retry_policy"]
	delete(tree, "retry_policy")
	path = join(path, "retry_policy")
	raw := inherited
	entries, _ := own.(map[string]any)
	schedule, scheduled := entries["schedule"]
	if raw.Schedule = nil; scheduled {
		if len(entries) > 1 {
			r.wrong(place, path, "a schedule stands alone, without the other keys")
		}
		raw, own = retry.Policy{}, map[string]any{"schedule": schedule}
	}
	if ok {
		r.decode(own, &raw, place, path)
	}
	if scheduled && len(raw.Schedule) == 0 {
		r.wrong(place, path+".schedule", "lists no wait")
		return inherited
	}
	if len(entries) == 0 {
		return inherited
	}
	return raw
}
