package cloudtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// collections has the last parts of paths that list resources.
var collections = map[string]bool{
	"services": true, "revisions": true, "jobs": true, "queues": true, "secrets": true, "versions": true,
	"topics": true, "subscriptions": true,
	"databases": true, "indexes": true, "backupSchedules": true, "alertPolicies": true, "dashboards": true,
	"notificationChannels": true,
	"metrics":              true, "serviceAccounts": true, "roles": true, "serviceLevelObjectives": true,
	"budgets": true,
}

// find returns the resource that a call names, not a copy.
func (c *Cloud) find(r call) (Document, error) {
	if found := c.held.Resources[r.key()]; found != nil {
		return found, nil
	}
	if strings.Contains(r.path, "/versions/") {
		return nil, notFound("Secret Version [%s] not found.", r.path)
	}
	return nil, notFound("not found: %s", r.key())
}

func (c *Cloud) read(r call) (Document, error) {
	if c.held.Resources[r.key()] != nil || !collections[last(r.path)] {
		return c.find(r)
	}
	listed := []any{}
	for _, key := range c.readers(strings.TrimSuffix(r.path, "/subscriptions")) { // of a topic
		listed = append(listed, strings.TrimPrefix(key, "pubsub/"))
	}
	for _, key := range c.keys(r.key() + "/") {
		if !strings.Contains(strings.TrimPrefix(key, r.key()+"/"), "/") {
			listed = append(listed, c.held.Resources[key])
		}
	}
	return Document{last(r.path): listed}, nil
}

// create adds a resource under the path and an id: the caller's, the one in its name, or a number.
func (c *Cloud) create(r *call, id string) (Document, error) {
	r.path = strings.TrimSuffix(r.path, "/"+id)
	if id = cmp.Or(id, last(text(r.body, "name"))); id == "" {
		id = fmt.Sprintf("id%d", c.next())
	}
	if r.email {
		id += "@" + Project + ".iam.gserviceaccount.com"
	}
	r.path += "/" + id
	if _, taken := c.held.Resources[r.key()]; taken {
		return nil, status.Errorf(codes.AlreadyExists, "already exists: %s", r.path)
	}
	made := r.body
	for field, value := range copied(r.new) {
		if made[field] == nil {
			made[field] = value
		}
	}
	made["name"], c.held.Resources[r.key()] = r.path, made
	c.say("create %s", r.key())
	switch {
	case r.email:
		made["email"], made["projectId"], made["uniqueId"] = id, Project, fmt.Sprintf("1%020d", c.next())
	case r.api == "compute":
		made["id"], made["selfLink"] = fmt.Sprint(c.next()), c.link(r.path)
	}
	return made, nil
}

// change writes the members in the mask, or all members of the body.
func (c *Cloud) change(r call) (Document, error) {
	if c.held.Resources[r.key()] == nil && r.old != nil {
		c.held.Resources[r.key()] = copied(r.old)
	}
	current, err := c.find(r)
	if err != nil {
		return nil, err
	}
	fields := slices.Collect(maps.Keys(r.body))
	if mask := r.query.Get("updateMask"); mask != "" {
		fields = strings.Split(mask, ",")
	} else if r.own != nil {
		fields = slices.AppendSeq(fields, maps.Keys(current))
		fields = slices.DeleteFunc(fields, func(field string) bool { return slices.Contains(r.own, field) })
	}
	for _, field := range fields {
		field, _, _ = strings.Cut(camel(field), ".")
		if value, has := r.body[field]; has {
			current[field] = value
		} else {
			delete(current, field)
		}
	}
	current["name"] = r.path
	c.say("change %s", r.key())
	return current, nil
}

// delete refuses a resource that is protected or named elsewhere. A subscription's messages are lost.
func (c *Cloud) delete(r call) (Document, error) {
	there, err := c.find(r)
	if text(there, "deleteProtectionState") == "DELETE_PROTECTION_ENABLED" {
		return nil, invalid("Database %s cannot be deleted: it has delete protection enabled", r.path)
	}
	named := "/" + strings.TrimPrefix(r.path, "projects/"+Project+"/") + `"`
	for _, key := range c.keys(r.api + "/") {
		written := string(must(json.Marshal(c.held.Resources[key])))
		if r.linked && key != r.key() && strings.Contains(written, named) {
			return nil, invalid("The resource '%s' is already being used by '%s'", r.path, key)
		}
	}
	for _, key := range c.readers(r.path) {
		c.held.Resources[key]["topic"] = "_deleted-topic_"
	}
	if n := At[float64](there, "waiting"); n > 0 {
		c.say("LOST %v messages of %s", n, last(r.path))
	}
	if err != nil {
		return nil, err
	}
	c.say("delete %s", r.key())
	if r.taken {
		there["deleted"] = true
		return there, nil
	}
	c.forget(r.key())
	return Document{}, nil
}

const subscriptionsOf = "pubsub/projects/" + Project + "/subscriptions/"

// readers returns the keys of a topic's subscriptions.
func (c *Cloud) readers(topic string) []string {
	others := func(key string) bool { return text(c.held.Resources[key], "topic") != topic }
	return slices.DeleteFunc(c.keys(subscriptionsOf), others)
}

// Publish publishes a message on a topic, by its short name. Without a subscription the message is lost.
func (c *Cloud) Publish(topic string) {
	c.Change(func(*State) {
		readers := c.readers("projects/" + Project + "/topics/" + topic)
		for _, key := range readers {
			subscription := c.held.Resources[key]
			if text(subscription, "pushConfig", "pushEndpoint") == "" {
				subscription["waiting"] = At[float64](subscription, "waiting") + 1
			}
		}
		if len(readers) == 0 {
			c.say("LOST a message to %s, which nobody reads", topic)
		}
	})
}

// ended returns an operation that has ended with a response or an error.
func (c *Cloud) ended(how string, with Document) Document {
	return Document{
		"name": fmt.Sprintf("projects/%s/operations/op-%d", Project, c.next()), "done": true, how: with,
	}
}

var underscore = regexp.MustCompile(`_(.)`)

// camel converts push_config to pushConfig.
func camel(field string) string {
	return underscore.ReplaceAllStringFunc(field, func(found string) string {
		return strings.ToUpper(found[1:])
	})
}

// must returns the value. It is for conversions of JSON, which cannot fail here.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// copied returns a deep copy; of nil it is nil.
func copied[T any](of T) (to T) {
	must(0, json.Unmarshal(must(json.Marshal(of)), &to))
	return to
}

// At returns the value at a path of members if it has the type T, else zero.
func At[T any](of any, path ...string) (found T) {
	for _, name := range path {
		members, _ := of.(Document)
		of = members[name]
	}
	found, _ = of.(T)
	return found
}

func text(of any, path ...string) string { return At[string](of, path...) }

func list(of any, path ...string) []any { return At[[]any](of, path...) }

func object(of any, path ...string) Document { return At[Document](of, path...) }
