package cloudtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

func (c *Cloud) read(r call) (any, error) {
	if found, is := c.held.Resources[r.key()]; is {
		return found, nil
	}
	if member := r.last(); !collections[member] {
		return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
	}
	listed := []any{}
	for _, key := range c.keys(r.key() + "/") {
		if !strings.Contains(strings.TrimPrefix(key, r.key()+"/"), "/") {
			listed = append(listed, c.held.Resources[key])
		}
	}
	return Document{r.last(): listed}, nil
}

var collections = map[string]bool{
	"services": true, "revisions": true, "jobs": true, "queues": true, "secrets": true, "versions": true, "topics": true, "subscriptions": true,
	"databases": true, "indexes": true, "backupSchedules": true, "alertPolicies": true, "dashboards": true, "notificationChannels": true,
	"metrics": true, "serviceAccounts": true, "roles": true, "serviceLevelObjectives": true, "budgets": true,
}

// create keeps a new resource under the path and an id: the caller's, or a number.
func (c *Cloud) create(r call, id string) (Document, error) {
	if id == "" {
		id = fmt.Sprintf("id%d", c.next())
	}
	key := r.key() + "/" + id
	if _, taken := c.held.Resources[key]; taken {
		return nil, refuse(http.StatusConflict, "already exists: %s/%s", r.path, id)
	}
	made := copied(r.body)
	made["name"] = r.path + "/" + id
	c.held.Resources[key] = made
	c.say("create %s", key)
	return made, nil
}

// change writes the members of the mask, or all that the body has.
func (c *Cloud) change(r call) (Document, error) {
	current, found := c.held.Resources[r.key()]
	if !found {
		return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
	}
	fields := slices.Collect(maps.Keys(r.body))
	if mask := r.ask("updateMask"); mask != "" {
		fields = nil
		for field := range strings.SplitSeq(mask, ",") {
			first, _, _ := strings.Cut(camel(field), ".")
			fields = append(fields, first)
		}
	}
	for _, field := range fields {
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

func (c *Cloud) remove(r call) (Document, error) {
	if _, found := c.held.Resources[r.key()]; !found {
		return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
	}
	c.forget(r.key())
	c.say("delete %s", r.key())
	return Document{}, nil
}

func (c *Cloud) done(of any) Document {
	return Document{"name": fmt.Sprintf("projects/%s/operations/op-%d", Project, c.next()), "done": true, "response": of}
}

func (c *Cloud) failed(words string) Document {
	return Document{"name": fmt.Sprintf("projects/%s/operations/op-%d", Project, c.next()), "done": true, "error": Document{"code": 9, "message": words}}
}

// camel writes push_config as pushConfig.
func camel(field string) string {
	parts := strings.Split(field, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}

func copied(of Document) Document {
	if of == nil {
		return nil
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // it was JSON when it came
	}
	var to Document
	if err := json.Unmarshal(text, &to); err != nil {
		panic(err)
	}
	if to == nil {
		to = Document{}
	}
	return to
}

func text(of any, path ...string) string {
	value, _ := at(of, path...).(string)
	return value
}

func list(of any, path ...string) []any {
	value, _ := at(of, path...).([]any)
	return value
}

func at(of any, path ...string) any {
	for _, name := range path {
		members, is := of.(Document)
		if !is {
			return nil
		}
		of = members[name]
	}
	return of
}
