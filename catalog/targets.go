package catalog

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const targetsFile = "targets.yaml"

// Target is a service that handlers post to.
type Target struct {
	Name           string `json:"-"`
	Description    string `json:"description"`     // what the service does
	URLVariable    string `json:"url_variable"`    // names the environment variable with its address
	SecretVariable string `json:"secret_variable"` // the environment variable with its secrets; the first signs
	Scheme         Scheme `json:"scheme"`          // how a request is signed: generic or standard
	// Internal is whether it may be at a private address; others are dialled at public ones alone.
	Internal bool     `json:"internal"`
	Timeouts Timeouts `json:"timeouts"` // how long one request may take
	// Concurrency is how many requests one instance has under way at once; 0 is no limit.
	Concurrency   int     `json:"concurrency"`
	RatePerSecond float64 `json:"rate_per_second"` // limits the requests of one instance; 0 is no limit
	Burst         int     `json:"burst"`           // how many may go out at once
	Breaker       Breaker `json:"breaker"`         // when requests to it stop
}

// Timeouts bound each step before a request is sent, and the whole exchange.
type Timeouts struct {
	Connect time.Duration `json:"connect"` // how long connecting may take; at most total
	Total   time.Duration `json:"total"`   // for the whole request; below 600s
}

// Breaker stops requests to a target for Rest after Failures in a row.
type Breaker struct {
	Failures int           `json:"failures"` // how many in a row open it; 0 is any number
	Rest     time.Duration `json:"rest"`     // how long it stays open: no request is made
}

// Endpoints are the addresses that third parties register. The zero value is none.
type Endpoints struct {
	Timeouts Timeouts `json:"timeouts"` // how long one request may take
	// requests of one instance to an endpoint at once; 0 is no limit
	Concurrency   int     `json:"concurrency"`
	RatePerSecond float64 `json:"rate_per_second"` // to one endpoint, of one instance; 0 is no limit
	Burst         int     `json:"burst"`           // how many may go out at once
	Breaker       Breaker `json:"breaker"`         // when requests to an endpoint stop
	// Remembered is how many endpoints an instance keeps limits and breakers for.
	Remembered int `json:"remembered"`
	// DisableAfter is how long an endpoint may fail without a success before it is disabled.
	DisableAfter time.Duration `json:"disable_after"`
	// OldSecretFor is how long the secret before a rotation signs beside the new one.
	OldSecretFor time.Duration `json:"old_secret_for"`
}

// Target returns the settings of every endpoint as a target.
func (e Endpoints) Target() Target {
	return Target{
		Name: "endpoint", Scheme: SchemeStandard, Timeouts: e.Timeouts, Concurrency: e.Concurrency,
		RatePerSecond: e.RatePerSecond, Burst: e.Burst, Breaker: e.Breaker,
	}
}

// Post is a handler without Go code: it posts the event to a path of a target.
type Post struct {
	Target string `json:"target"` // a name of targets.yaml
	Path   string `json:"path"`   // the path that is posted to
	// Reconcile is the path, with {id}, that says by 200 whether the target has an event; empty: it need not.
	Reconcile string `json:"reconcile"`
	Form      Form   `json:"form"` // that of the body: of one event, or of all the attempts of a batch
}

// Form is how a post is written.
type Form string

// The forms of a post.
const (
	Single Form = "" // a JSON object, of one event
	// Bulk is that of Elasticsearch's _bulk: an action and a document for each event, or the action alone for a
	// type that ends in .deleted. Tenant and ordering key name the document.
	Bulk   Form = "bulk"
	NDJSON Form = "ndjson" // a line of JSON for each event
)

// handler returns the name of a post in the registry. No handler of Go can have it.
func (p Post) handler() string { return "post:" + p.Target + p.Path }

// Batch is how many attempts of a queue one call of its handler takes. The zero value is one.
type Batch struct {
	Size int           `json:"size"` // the most attempts of one call
	Wait time.Duration `json:"wait"` // how long the first attempt waits for others
}

// Posts returns the posts of the pool's enabled queues; an empty pool is all pools.
func (c *Catalog) Posts(pool string) []Post {
	found := map[string]Post{}
	for q, h := range c.handlers() {
		if h.Post != (Post{}) && (pool == "" || q.Pool == pool) {
			found[h.Name] = h.Post
		}
	}
	return byName(found)
}

// TargetsOf returns the targets that the enabled queues of the pool post to or call, by name.
func (c *Catalog) TargetsOf(pool string) []Target {
	needed := map[string]Target{}
	for q, h := range c.handlers() {
		for _, name := range h.Targets() {
			if pool == "" || q.Pool == pool {
				needed[name] = c.Targets[name]
			}
		}
	}
	return byName(needed)
}

func byName[T any](named map[string]T) (all []T) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, named[name])
	}
	return all
}

// Targets returns the names of the targets that the handler posts to or calls.
func (h Handler) Targets() []string {
	if h.Post != (Post{}) {
		return []string{h.Post.Target}
	}
	return h.Calls
}

func (c *Catalog) readTargets(r *reader, node *yaml.Node) {
	c.Targets = each(r, node, targetsFile, "targets", "target",
		func(name string, t *Target, require requirer) {
			t.Name = name
			require(label.MatchString(t.Name), "name", labelRule)
			require(t.Description != "", "description", "is missing")
			require(urlVariable.MatchString(t.URLVariable) && !slices.Contains(ownVariables, t.URLVariable),
				"url_variable", "must be an environment variable that ends with _URL, and none of the programs' own")
			require(secretVariable.MatchString(t.SecretVariable), "secret_variable",
				"must be an environment variable that ends with _SECRET")
			require(!strings.HasPrefix(t.SecretVariable, "WEBHOOK_"), "secret_variable",
				"must not begin with WEBHOOK_, as a source's: a receiver could sign as a sender")
			oneOf(require, "scheme", t.Scheme, SchemeGeneric, SchemeStandard)
			checkLimits(require, *t)
		})
}

// readEndpoints reads the settings of all endpoints. A folder may have none.
func (c *Catalog) readEndpoints(r *reader, node *yaml.Node) {
	if node == nil {
		return
	}
	const place = targetsFile + ": endpoints"
	tree, ok := r.branch(node, place, "")
	if !ok {
		return
	}
	r.decode(tree, &c.Endpoints, place, "")
	require, e := r.requirer(place), c.Endpoints
	checkLimits(require, e.Target())
	within(require, "remembered", e.Remembered, 1, 1e6, "")
	within(require, "disable_after", e.DisableAfter, time.Hour, 90*24*time.Hour, "")
	within(require, "old_secret_for", e.OldSecretFor, time.Minute, 30*24*time.Hour, "")
}

var (
	urlVariable    = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,50}_URL$`)
	secretVariable = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,50}_SECRET$`)
	// ownVariables are the programs' own variables whose names end as a target's may.
	ownVariables = []string{"ALARM_URL", "PUSH_BASE_URL"}
	postPath     = regexp.MustCompile(`^(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){1,9}$`)
)

func checkLimits(require requirer, t Target) {
	require(0 < t.Timeouts.Connect && t.Timeouts.Connect <= t.Timeouts.Total, "timeouts.connect",
		"must be above 0 and at most timeouts.total, "+seconds(t.Timeouts.Total))
	require(t.Timeouts.Total < maxAckDeadline, "timeouts.total", "must be below 600s, the longest ack deadline")
	within(require, "concurrency", t.Concurrency, 0, maxConcurrency, noLimit)
	within(require, "rate_per_second", t.RatePerSecond, 0, 1e6, noLimit)
	require((t.RatePerSecond > 0) == (t.Burst > 0) && 0 <= t.Burst && t.Burst <= 1e6, "burst",
		"must be 1 to 1000000 where rate_per_second is above 0, and only there")
	within(require, "breaker.failures", t.Breaker.Failures, 0, 1000, "which is any number")
	require((t.Breaker.Failures > 0) == (t.Breaker.Rest > 0) && t.Breaker.Rest <= maxWait, "breaker.rest",
		"must be above 0s and at most 86400s where failures is above 0, and only there")
}

// checkPosts checks a queue's posts and batch. posts has the posts of earlier queues, by handler name: later
// entries of a path must equal the first.
func (r *reader) checkPosts(place string, q Queue, c *Catalog, posts map[string]Post) {
	require, shortest := r.requirer(place), q.HandlerTimeout
	for _, eventType := range slices.Sorted(maps.Keys(q.Handlers)) {
		h, path := q.Handlers[eventType], handlerPath(eventType)
		shortest = min(shortest, h.Timeout)
		for i, name := range h.Calls {
			_, ok := c.Targets[name]
			require(ok, path+".calls", "no target has the name "+shown(name))
			require(!slices.Contains(h.Calls[:i], name), path+".calls", "lists "+shown(name)+" twice")
		}
		if h.Post == (Post{}) {
			continue
		}
		require(len(h.Calls) == 0, path+".calls", "a post calls its target alone")
		require(len(h.Emits) == 0, path+".emits", "a post emits nothing")
		path += ".post"
		_, ok := c.Targets[h.Post.Target]
		require(ok, path+".target", "no target has the name "+shown(h.Post.Target))
		require(postPath.MatchString(h.Post.Path), path+".path",
			"must be / and a segment of letters, digits and _ . -, up to nine times")
		single, reconciled := h.Post.Form == Single, h.Post.Reconcile != ""
		before, after, found := strings.Cut(h.Post.Reconcile, "/{id}")
		found = found && (after == "" || after[0] == '/') && postPath.MatchString(before+after)
		require(found || !reconciled, path+".reconcile",
			"must be a path like that, with {id} for one segment that is not its first")
		known := slices.Contains([]Form{Single, Bulk, NDJSON}, h.Post.Form)
		require(known, path+".form", "must be bulk or ndjson, or left out")
		require(single || q.Batch != (Batch{}), path+".form", "is that of a batch, and the queue has none")
		require(h.Post.Form != Bulk || q.Ordered(), path+".form",
			"a bulk names documents by the ordering key, and the queue has none")
		require(single || !reconciled, path+".reconcile",
			"must be left out for a batch: the target applies the same line once")
		first, twice := posts[h.Name]
		require(!twice || first == h.Post, path+".reconcile",
			"must be the same in every entry that posts to this path, and so must the form")
		if !twice {
			posts[h.Name] = h.Post
		}
	}
	if b := q.Batch; b != (Batch{}) {
		require(2 <= b.Size && b.Size <= q.Concurrency, "batch.size",
			"must be 2 to concurrency: a batch is gathered of messages that are handled at once")
		require(0 < b.Wait && b.Wait <= time.Second && (b.Wait < shortest || shortest <= 0), "batch.wait",
			"must be above 0s, at most 1s, and below the shortest timeout")
	}
}
