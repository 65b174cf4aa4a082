package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// Producers names the source whose secrets sign producers' messages; each deployment has it.
const Producers = "generic"

// Only returns the catalog of a deployment that runs only the named queues, by id or alias; without names it
// runs every enabled one. Sources without a running queue are left out, but not the producers'. The error
// joins every mistake, such as a queue that is emitted to and does not run.
func (c *Catalog) Only(names []string) (*Catalog, error) {
	if len(names) == 0 {
		return c, nil
	}
	running, mistakes := c.named(names)
	only := *c
	only.only = names
	only.Queues = slices.Clone(c.Queues)
	for i := range only.Queues {
		only.Queues[i].Enabled = running[only.Queues[i].ID]
	}
	only.emitIfRun()
	only.TasksPool = only.tasksPool(c.TasksPool)
	mistakes = append(mistakes, only.needs()...)
	only.OutboundTopics = slices.DeleteFunc(slices.Clone(c.OutboundTopics), func(t Topic) bool {
		return !only.emits(t.ID)
	})
	only.Sources = map[string]Source{}
	for name, s := range c.Sources {
		s.Events = maps.Clone(s.Events)
		maps.DeleteFunc(s.Events, func(_, id string) bool { return !running[id] })
		if len(s.Events) > 0 || name == Producers {
			only.Sources[name] = s
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return &only, nil
}

// emits reports whether a handler of an enabled queue emits to the topic.
func (c *Catalog) emits(topic string) bool {
	for _, h := range c.handlers() {
		if slices.Contains(h.Emits, topic) {
			return true
		}
	}
	return false
}

// emitIfRun lets each handler emit to the enabled queues of its EmitsIfRun, and to none of the disabled ones.
func (c *Catalog) emitIfRun() {
	for i, q := range c.Queues {
		handlers := maps.Clone(q.Handlers)
		for eventType, h := range handlers {
			if len(h.EmitsIfRun) == 0 {
				continue
			}
			optional := func(id string) bool { return slices.Contains(h.EmitsIfRun, id) }
			h.Emits = slices.DeleteFunc(slices.Clone(h.Emits), optional)
			for _, id := range h.EmitsIfRun {
				if to, ok := c.Queue(id); ok && to.Enabled && to.ID == id {
					h.Emits = append(h.Emits, id)
				}
			}
			handlers[eventType] = h
		}
		c.Queues[i].Handlers = handlers
	}
}

// Pools returns the sorted names of the pools that have an enabled queue.
func (c *Catalog) Pools() (names []string) {
	for _, q := range c.Enabled() {
		names = append(names, q.Pool)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tasks names the pool that runs the tasks: as declared in the files, and as chosen for the deployment.
type tasks struct{ declared, chosen string }

// ForTasks returns the catalog with the pool whose worker runs the tasks: the named one, else the files'
// tasks_pool, else the only one. If several run, one must be named: a new pool must not move the tasks.
func (c *Catalog) ForTasks(pool string) (*Catalog, error) {
	named, runs := cmp.Or(pool, c.tasks.declared), c.Pools()
	all, decided := strings.Join(runs, ", "), *c
	decided.tasks.chosen = pool
	switch {
	case slices.Contains(runs, named):
		decided.TasksPool = named
	case pool != "":
		return nil, fmt.Errorf("TASKS_POOL: no queue that runs here is in pool %s; the pools are %s",
			shown(pool), all)
	case len(runs) > 1 && named == "":
		return nil, fmt.Errorf("TASKS_POOL: the catalog's tasks_pool names none for the tasks: name one of %s", all)
	case len(runs) > 1:
		return nil,
			fmt.Errorf("TASKS_POOL: no queue of the catalog's tasks_pool %s runs here: name one of %s", named, all)
	}
	return &decided, nil
}

// tasksPool returns the named pool if it has an enabled queue, else the first that has one; empty: none has.
func (c *Catalog) tasksPool(named string) string {
	pools := c.Pools()
	if len(pools) == 0 || slices.Contains(pools, named) {
		return named
	}
	return pools[0]
}

func (c *Catalog) named(names []string) (ids map[string]bool, mistakes []error) {
	ids = map[string]bool{}
	for _, name := range names {
		name = strings.TrimSpace(name)
		q, ok := c.Queue(name)
		switch {
		case name == "":
			mistakes = append(mistakes, errors.New("QUEUES: an entry is empty"))
		case !ok:
			mistakes = append(mistakes, fmt.Errorf("QUEUES: no queue has the id or alias %s", shown(name)))
		case !q.Enabled:
			mistakes = append(mistakes, fmt.Errorf("QUEUES: queue %s is not enabled in the catalog", q.ID))
		case ids[q.ID]:
			mistakes = append(mistakes, fmt.Errorf("QUEUES: queue %s is named twice", q.ID))
		}
		if ok && q.Enabled {
			ids[q.ID] = true
		}
	}
	return ids, mistakes
}

// needs reports the emissions of enabled queues that no running queue takes.
func (c *Catalog) needs() (mistakes []error) {
	reasons := map[string]bool{}
	for q, h := range c.handlers() {
		for _, id := range h.Emits {
			format := "QUEUES: queue %s emits to topic %s, and no queue that takes messages of it runs here: " +
				"name one too"
			switch to, isQueue := c.Queue(id); {
			case isQueue && to.Enabled, !isQueue && slices.Contains(c.OtherTopics(), id):
				continue
			case isQueue:
				format = "QUEUES: queue %s emits to queue %s, which does not run here: name it too"
			}
			reasons[fmt.Sprintf(format, q.ID, id)] = true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		mistakes = append(mistakes, errors.New(reason))
	}
	return mistakes
}

// Hash returns 8 hexadecimal digits of the files' hash, which Terraform computes too; empty: no files.
func (c *Catalog) Hash() string { return c.hash }

// hashOf hashes the catalog's files by name, as `ls *.yaml providers/*.yaml | LC_ALL=C sort | xargs sha256sum
// | sha256sum` does.
func hashOf(files fs.FS) string {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		return ""
	}
	more, _ := fs.Glob(files, providersFiles) // the pattern is good
	names = append(names, more...)
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return ""
		}
		_, _ = fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(text), name) // a hash takes everything
	}
	return hex.EncodeToString(all.Sum(nil))[:8]
}

// With returns the catalog of the same deployment with some files replaced, by their names, such as
// products.yaml. The error joins every mistake.
func (c *Catalog) With(files map[string]string) (*Catalog, error) {
	if c.files == nil {
		return nil, errors.New("catalog: it was made of no files")
	}
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := fs.Stat(embedded, name); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: no file of a catalog has this name", shown(name)))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	replaced, err := load(overlaid{c.files, files})
	if err != nil {
		return nil, err
	}
	narrowed, err := replaced.Only(c.only)
	if err != nil || c.tasks.chosen == "" {
		return narrowed, err
	}
	return narrowed.ForTasks(c.tasks.chosen)
}

type overlaid struct {
	fs.FS
	files map[string]string
}

// ReadFile implements fs.ReadFileFS.
func (o overlaid) ReadFile(name string) ([]byte, error) {
	if text, ok := o.files[name]; ok {
		return []byte(text), nil
	}
	return fs.ReadFile(o.FS, name)
}
