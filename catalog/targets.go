package catalog

import (
	"cmp"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	targetsFile = "targets.yaml"
	targetPlace = targetsFile + ": target"
)

// Target is a service that handlers post to.
type Target struct {
	Name        string
	Description string
	// URLVariable and SecretVariable name environment variables: the base URL, and the
	// secrets, of which the first signs.
	URLVariable, SecretVariable string
	// Scheme is how a request is signed: SchemeGeneric or SchemeStandard.
	Scheme Scheme
	// Internal targets may be at private addresses; others are dialled at public ones alone.
	Internal bool
	// ConnectTimeout bounds each step before a request is sent; TotalTimeout bounds the whole exchange.
	ConnectTimeout, TotalTimeout time.Duration
	// Concurrency is how many requests one instance has under way at once; 0 is no limit.
	Concurrency int
	// RatePerSecond and Burst limit the requests of one instance; 0 is no limit.
	RatePerSecond float64
	Burst         int
	// BreakerFailures is how many requests in a row may fail before the target is left alone
	// for BreakerRest; 0 is any number.
	BreakerFailures int
	BreakerRest     time.Duration
}

// Post is what a handler without Go does: it posts the event to a target.
type Post struct {
	// Target is a name of targets.yaml.
	Target string
	// Path is where on the target.
	Path string
	// Reconcile is the path that says by 200 whether the target has an event, with {id} in the
	// place of its id. Empty: the target applies one Idempotency-Key once.
	Reconcile string
}

// handler is the name that a post has in the registry. No handler of Go can have it.
func (p Post) handler() string { return "post:" + p.Target + "/" + p.Path }

// Batch is how many attempts of a queue one call of its handler takes. The zero value is one.
type Batch struct {
	Size int
	// Wait is how long the first attempt waits for others.
	Wait time.Duration
}

// Posts returns what the enabled queues of the pool post, by target and path; an empty pool is
// all pools.
func (c *Catalog) Posts(pool string) []Post {
	found := map[string]Post{}
	for _, q := range c.Queues {
		for _, h := range q.Handlers {
			if h.Post != (Post{}) && q.Enabled && (pool == "" || q.Pool == pool) {
				found[h.Name] = h.Post
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Post) int { return cmp.Compare(a.handler(), b.handler()) })
}

// TargetsOf returns the targets that the enabled queues of the pool post to, by name.
func (c *Catalog) TargetsOf(pool string) (targets []Target) {
	for _, p := range c.Posts(pool) { // those to one target follow each other
		if len(targets) == 0 || targets[len(targets)-1].Name != p.Target {
			targets = append(targets, c.Targets[p.Target])
		}
	}
	return targets
}

// ToldBy returns the first queue that a handler of this name, of an enabled queue, emits to.
func (c *Catalog) ToldBy(handler string) (Queue, bool) {
	for _, q := range c.Queues {
		for _, h := range q.Handlers {
			if !q.Enabled || h.Name != handler {
				continue
			}
			for _, id := range h.Emits {
				if told, ok := c.Queue(id); ok {
					return told, true
				}
			}
		}
	}
	return Queue{}, false
}

type rawTargets struct {
	Targets map[string]*yaml.Node `yaml:"targets"`
}

type rawTarget struct {
	Description    string `yaml:"description"`
	URLVariable    string `yaml:"url_variable"`
	SecretVariable string `yaml:"secret_variable"`
	Scheme         string `yaml:"scheme"`
	Internal       bool   `yaml:"internal"`
	Timeouts       struct {
		Connect duration `yaml:"connect"`
		Total   duration `yaml:"total"`
	} `yaml:"timeouts"`
	Concurrency   int     `yaml:"concurrency"`
	RatePerSecond float64 `yaml:"rate_per_second"`
	Burst         int     `yaml:"burst"`
	Breaker       struct {
		Failures int      `yaml:"failures"`
		Rest     duration `yaml:"rest"`
	} `yaml:"breaker"`
}

type rawPost struct {
	Target    string `yaml:"target"`
	Path      string `yaml:"path"`
	Reconcile string `yaml:"reconcile"`
}

type rawBatch struct {
	Size int      `yaml:"size"`
	Wait duration `yaml:"wait"`
}

func (c *Catalog) readTargets(r *reader, raw rawTargets) {
	urls := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(raw.Targets)) {
		place := targetPlace + " " + shown(name)
		var t rawTarget
		r.value(raw.Targets[name], reflect.ValueOf(&t).Elem(), place, "")
		target := Target{
			Name: name, Description: t.Description, URLVariable: t.URLVariable, SecretVariable: t.SecretVariable,
			Scheme: Scheme(t.Scheme), Internal: t.Internal,
			ConnectTimeout: time.Duration(t.Timeouts.Connect), TotalTimeout: time.Duration(t.Timeouts.Total),
			Concurrency: t.Concurrency, RatePerSecond: t.RatePerSecond, Burst: t.Burst,
			BreakerFailures: t.Breaker.Failures, BreakerRest: time.Duration(t.Breaker.Rest),
		}
		r.checkTarget(place, target)
		r.takeNames(urls, place, "url_variable", target.URLVariable)
		c.Targets[name] = target
	}
}

var (
	targetName     = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
	urlVariable    = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,50}_URL$`)
	secretVariable = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,50}_SECRET$`)
	// ownVariables end as a target's may, and are the programs'.
	ownVariables = []string{"ALARM_URL", "PUSH_BASE_URL"}
	postPath     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$`)
)

func (r *reader) checkTarget(place string, t Target) {
	require := r.requirer(place)
	require(targetName.MatchString(t.Name), "name", "must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -")
	require(t.Description != "", "description", "is missing")
	require(urlVariable.MatchString(t.URLVariable) && !slices.Contains(ownVariables, t.URLVariable), "url_variable", "must be an environment variable that ends with _URL, and none of the programs' own")
	require(secretVariable.MatchString(t.SecretVariable), "secret_variable", "must be an environment variable that ends with _SECRET")
	require(t.Scheme == SchemeGeneric || t.Scheme == SchemeStandard, "scheme", "must be generic or standard")
	require(0 < t.ConnectTimeout && t.ConnectTimeout <= t.TotalTimeout, "timeouts.connect", "must be above 0 and at most timeouts.total, "+seconds(t.TotalTimeout))
	require(t.TotalTimeout < maxAckDeadline, "timeouts.total", "must be below 600s, the longest ack deadline")
	require(0 <= t.Concurrency && t.Concurrency <= maxConcurrency, "concurrency", "must be 0, which is no limit, to 1000")
	require(0 <= t.RatePerSecond && t.RatePerSecond <= 1e6, "rate_per_second", "must be 0, which is no limit, to 1000000")
	require((t.RatePerSecond > 0) == (t.Burst > 0) && 0 <= t.Burst && t.Burst <= 1e6, "burst", "must be 1 to 1000000 where rate_per_second is above 0, and only there")
	require(0 <= t.BreakerFailures && t.BreakerFailures <= 1000, "breaker.failures", "must be 0, which is any number, to 1000")
	require((t.BreakerFailures > 0) == (t.BreakerRest > 0) && t.BreakerRest <= maxWait, "breaker.rest", "must be above 0s and at most 86400s where failures is above 0, and only there")
}

// checkPosts checks what the handlers of a queue post to, and how many attempts it gathers. posts
// are those of the queues before, by the name of their handler.
func (r *reader) checkPosts(place string, q Queue, c *Catalog, posts map[string]Post) {
	shortest := q.HandlerTimeout
	for eventType, h := range q.Handlers {
		shortest = min(shortest, h.Timeout)
		if h.Post == (Post{}) {
			continue
		}
		require := r.requirer(place)
		path := handlerPath(eventType) + ".post"
		t, ok := c.Targets[h.Post.Target]
		require(ok, path+".target", "no target has the name "+shown(h.Post.Target))
		require(!ok || t.TotalTimeout <= h.Timeout, path+".target", "its timeouts.total, "+seconds(t.TotalTimeout)+", must be at most the handler's timeout, "+seconds(h.Timeout))
		require(postPath.MatchString(h.Post.Path), path+".path", "must be segments of letters, digits and _ . -, with / between them")
		before, after, found := strings.Cut(h.Post.Reconcile, "/{id}")
		require(h.Post.Reconcile == "" || (found && (after == "" || after[0] == '/') && postPath.MatchString(before+after)), path+".reconcile", "must be a path with {id} for one segment that is not its first")
		other, twice := posts[h.Name]
		require(!twice || other == h.Post, path+".reconcile", "must be the same in every entry that posts to this path")
		posts[h.Name] = h.Post
	}
	b, require := q.Batch, r.requirer(place)
	require(b == (Batch{}) || (2 <= b.Size && b.Size <= q.Concurrency), "batch.size", "must be 2 to concurrency: what is not handled at once cannot be gathered")
	require(b == (Batch{}) || (0 < b.Wait && b.Wait <= time.Second && b.Wait < shortest), "batch.wait", "must be above 0s, at most 1s, and below the shortest timeout")
}

// shownTargets are the targets as JSON has them.
func (c *Catalog) shownTargets() map[string]any {
	targets := map[string]any{}
	for name, t := range c.Targets {
		targets[name] = map[string]any{
			"description": t.Description, "url_variable": t.URLVariable, "secret_variable": t.SecretVariable, "scheme": t.Scheme, "internal": t.Internal,
			"timeouts":    map[string]any{"connect": seconds(t.ConnectTimeout), "total": seconds(t.TotalTimeout)},
			"concurrency": t.Concurrency, "rate_per_second": t.RatePerSecond, "burst": t.Burst,
			"breaker": map[string]any{"failures": t.BreakerFailures, "rest": seconds(t.BreakerRest)},
		}
	}
	return targets
}
