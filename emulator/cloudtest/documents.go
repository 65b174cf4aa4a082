package cloudtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// collections are the last parts of the paths that list.
var collections = map[string]bool{
	"services": true, "revisions": true, "jobs": true, "queues": true, "secrets": true, "versions": true, "topics": true, "subscriptions": true,
	"databases": true, "indexes": true, "backupSchedules": true, "alertPolicies": true, "dashboards": true, "notificationChannels": true,
	"metrics": true, "serviceAccounts": true, "roles": true, "serviceLevelObjectives": true, "budgets": true,
}

// find is the resource that a call is about, which is no copy.
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
	if c.held.Resources[r.key()] != nil || !collections[r.last()] {
		return c.find(r)
	}
	listed := []any{}
	if topic, lists := strings.CutSuffix(r.key(), "/subscriptions"); lists && strings.Contains(topic, "/topics/") {
		for _, key := range c.readers(strings.TrimPrefix(topic, "pubsub/")) {
			listed = append(listed, strings.TrimPrefix(key, "pubsub/"))
		}
	}
	for _, key := range c.keys(r.key() + "/") {
		if !strings.Contains(strings.TrimPrefix(key, r.key()+"/"), "/") {
			listed = append(listed, c.held.Resources[key])
		}
	}
	return Document{r.last(): listed}, nil
}

// create keeps a new resource under the path and an id: the caller's, or a number.
func (c *Cloud) create(r call, id string) (Document, error) {
	if id == "" {
		id = fmt.Sprintf("id%d", c.next())
	}
	key := r.key() + "/" + id
	if _, taken := c.held.Resources[key]; taken {
		return nil, status.Errorf(codes.AlreadyExists, "already exists: %s/%s", r.path, id)
	}
	made := copied(r.body)
	made["name"] = r.path + "/" + id
	c.held.Resources[key] = made
	c.say("create %s", key)
	return made, nil
}

// change writes the members of the mask, or all that the body has.
func (c *Cloud) change(r call, of collection) (Document, error) {
	current, err := c.find(r)
	if err != nil {
		return nil, err
	}
	fields := slices.Collect(maps.Keys(r.body))
	if mask := r.query.Get("updateMask"); mask != "" {
		fields = strings.Split(mask, ",")
	} else if of.own != nil {
		fields = slices.AppendSeq(fields, maps.Keys(current))
		fields = slices.DeleteFunc(fields, func(field string) bool { return slices.Contains(of.own, field) })
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

func (c *Cloud) remove(r call) error {
	_, err := c.find(r)
	if err == nil {
		c.forget(r.key())
		c.say("delete %s", r.key())
	}
	return err
}

// ended is an operation that has ended: with a response, or with an error.
func (c *Cloud) ended(how string, with Document) Document {
	return Document{"name": fmt.Sprintf("projects/%s/operations/op-%d", Project, c.next()), "done": true, how: with}
}

var underscore = regexp.MustCompile(`_(.)`)

// camel writes push_config as pushConfig.
func camel(field string) string {
	return underscore.ReplaceAllStringFunc(field, func(found string) string { return strings.ToUpper(found[1:]) })
}

// copied is a deep copy; of nothing it is nothing.
func copied(of Document) (to Document) {
	must(0, json.Unmarshal(must(json.Marshal(of)), &to))
	return to
}

// At is the value at a path of members, if it is of that kind.
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
