package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// collection is how an API treats the resources of one kind. What it does not say is so for all: they are created under a
// path and an id, read, changed, deleted and listed.
type collection struct {
	// ids are the parameters of the query that have a new resource's id; none: it is the end of its own name, or a number.
	ids []string
	// short: it is called by its id alone in what the API writes.
	short bool
	// new are the members that the API adds to a new resource, and old a resource that was there before anybody wrote it.
	new, old Document
	// ends says what an operation on it is that has ended well; nil: the API answers with the resource.
	ends func(c *Cloud, path string, of Document) Document
	// linked: what another resource names cannot be deleted, and what is named must be there.
	linked bool
}

var operation = func(c *Cloud, _ string, of Document) Document { return c.done(of) }

func computing(c *Cloud, path string, _ Document) Document {
	return Document{"kind": "compute#operation", "name": fmt.Sprintf("operation-%d", c.next()), "status": "DONE", "progress": 100, "targetLink": c.link(path)}
}

// planes are the collections of the APIs that have no rules of their own, by API and name; * is any other.
var planes = map[string]collection{
	"cloudscheduler/jobs": {new: Document{"state": "ENABLED", "retryConfig": Document{
		"maxRetryDuration": "0s", "minBackoffDuration": "5s", "maxBackoffDuration": "3600s", "maxDoublings": 5,
	}}},
	"cloudtasks/queues": {new: Document{"state": "RUNNING"}},
	"cloudbilling/*":    {old: Document{"projectId": Project, "billingAccountName": "billingAccounts/0", "billingEnabled": true}},
	"monitoring/*":      {ids: []string{"serviceLevelObjectiveId", "serviceId"}, new: Document{"etag": "etag"}},
	"logging/buckets": {
		ids: []string{"bucketId"}, ends: operation,
		new: Document{"lifecycleState": "ACTIVE"}, old: Document{"retentionDays": 30, "lifecycleState": "ACTIVE"},
	},
	"logging/*":                 {short: true},
	"firestore/fields":          {old: Document{}, ends: operation}, // every field is there, and most never written
	"firestore/indexes":         {new: Document{"state": "READY"}, ends: operation},
	"firestore/backupSchedules": {},
	"firestore/databases": {ids: []string{"databaseId"}, ends: operation, new: Document{
		"state": "READY", "uid": "uid", "etag": "etag", "createTime": start, "earliestVersionTime": start,
		"versionRetentionPeriod": "604800s", "keyPrefix": "",
	}},
	"compute/addresses": {short: true, linked: true, ends: computing, new: Document{
		"fingerprint": "fp", "address": "203.0.113.7", "status": "RESERVED",
	}},
	"compute/*": {short: true, linked: true, ends: computing, new: Document{"fingerprint": "fp"}},
	"certificatemanager/certificateMapEntries": {
		ids: []string{"certificateMapEntryId"}, linked: true, ends: operation, new: Document{"state": "ACTIVE"},
	},
	"certificatemanager/dnsAuthorizations": {ids: []string{"dnsAuthorizationId"}, linked: true, ends: operation, new: Document{
		"dnsResourceRecord": Document{"name": "_acme-challenge.example.com.", "type": "CNAME", "data": "authorize.example.com."},
	}},
	"certificatemanager/*": {ids: []string{"certificateId", "certificateMapId"}, linked: true, ends: operation},
}

const start = "2026-01-01T00:00:00Z"

// plain answers by the table of the planes.
func (c *Cloud) plain(r call) (any, error) {
	kind, of := "", collection{}
	for _, name := range []string{r.last(), strings.Split("//"+r.path, "/")[strings.Count(r.path, "/")+1], "*"} {
		if found, has := planes[r.api+"/"+name]; has {
			kind, of = name, found
			break
		}
	}
	if err := c.plainly(r); err != nil {
		return nil, err
	}
	answer := func(is Document, err error) (any, error) {
		if err != nil || of.ends == nil {
			return is, err
		}
		return of.ends(c, r.path, is), nil
	}
	switch {
	case r.method == http.MethodGet && c.held.Resources[r.key()] == nil && of.old != nil && r.last() != kind:
		is := copied(of.old)
		is["name"] = r.path
		return is, nil
	case r.method == http.MethodGet:
		return c.read(r)
	case r.method == http.MethodDelete:
		for _, key := range c.keys(r.api + "/") {
			written, err := json.Marshal(c.held.Resources[key])
			if of.linked && err == nil && key != r.key() && strings.Contains(string(written), "/"+strings.TrimPrefix(r.path, "projects/"+Project+"/")+`"`) {
				return nil, refuse(http.StatusBadRequest, "The resource '%s' is already being used by '%s'", r.path, key)
			}
		}
		return answer(c.remove(r))
	case r.method == http.MethodPost && (r.verb == "" || r.verb == "createAsync"):
		id := ""
		for _, parameter := range of.ids {
			id += r.ask(parameter)
		}
		if name := text(r.body, "name"); id == "" {
			id = name[strings.LastIndex(name, "/")+1:]
		}
		made, err := c.create(r, id)
		if err != nil {
			return nil, err
		}
		for field, value := range of.new {
			if made[field] == nil {
				made[field] = value
			}
		}
		if r.path = text(made, "name"); of.short {
			made["name"] = r.last()
		}
		if r.api == "compute" {
			made["id"], made["selfLink"] = fmt.Sprint(c.next()), c.link(r.path)
		}
		return answer(made, nil)
	}
	if c.held.Resources[r.key()] == nil && of.old != nil {
		c.held.Resources[r.key()] = copied(of.old)
	}
	changed, err := c.change(r)
	if err == nil && of.short {
		changed["name"] = r.last()
	}
	if ttl, is := changed["ttlConfig"].(Document); is {
		ttl["state"] = "ACTIVE"
	}
	return answer(changed, err)
}

var logMetric = regexp.MustCompile(`logging\.googleapis\.com/user/([A-Za-z0-9_/-]+)`)

// plainly is what the planes refuse besides.
func (c *Cloud) plainly(r call) error {
	if r.method == http.MethodDelete && text(c.held.Resources[r.key()], "deleteProtectionState") == "DELETE_PROTECTION_ENABLED" {
		return refuse(http.StatusBadRequest, "Database %s cannot be deleted: it has delete protection enabled", r.path)
	}
	if database, _, inside := strings.Cut(r.key(), "/collectionGroups/"); inside && c.held.Resources[database] == nil {
		return refuse(http.StatusNotFound, "The database %s does not exist", database)
	}
	if r.method == http.MethodGet || r.method == http.MethodDelete {
		return nil
	}
	if email := text(r.body, "httpTarget", "oidcToken", "serviceAccountEmail"); email != "" && !c.exists(email) {
		return refuse(http.StatusNotFound, "Service account %s does not exist", email)
	}
	written, err := json.Marshal(r.body)
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	for _, found := range regexp.MustCompile(`/compute/v1/([^"]+)"`).FindAllStringSubmatch(string(written), -1) {
		if c.held.Resources["compute/"+found[1]] == nil {
			return refuse(http.StatusNotFound, "The resource '%s' was not found", found[1])
		}
	}
	if !strings.Contains(r.path, "/alertPolicies") {
		return nil
	}
	for _, found := range logMetric.FindAllStringSubmatch(string(written), -1) {
		key := "logging/projects/" + Project + "/metrics/" + found[1]
		if c.held.Resources[key] == nil || slices.Contains(c.hidden, key) {
			return refuse(http.StatusNotFound, "Cannot find metric that matches type = \"logging.googleapis.com/user/%s\". If a metric was created recently, it could take up to 10 minutes to become available.", found[1])
		}
	}
	if n := len(list(r.body, "conditions")); n > 6 {
		return refuse(http.StatusBadRequest, "Field alert_policy.conditions had an invalid value: a policy has at most 6 conditions, not %d", n)
	}
	for _, channel := range list(r.body, "notificationChannels") {
		if name, _ := channel.(string); c.held.Resources["monitoring/"+name] == nil {
			return refuse(http.StatusNotFound, "Cannot find notification channel %s", name)
		}
	}
	for _, condition := range list(r.body, "conditions") {
		if text(condition, "name") == "" {
			condition.(Document)["name"] = fmt.Sprintf("projects/%s/alertPolicies/x/conditions/%d", Project, c.next())
		}
	}
	return nil
}

// compute answers for load balancers, whose parts have calls of their own.
func (c *Cloud) compute(r call) (any, error) {
	for ending, member := range map[string]string{"/setSecurityPolicy": "securityPolicy", "/setLabels": "labels"} {
		if of, is := strings.CutSuffix(r.path, ending); is {
			found := c.held.Resources["compute/"+of]
			if found == nil {
				return nil, refuse(http.StatusNotFound, "The resource '%s' was not found", of)
			}
			found[member], found["labelFingerprint"] = r.body[member], fmt.Sprint(c.next())
			return computing(c, of, nil), nil
		}
	}
	return c.plain(r)
}

func (c *Cloud) link(name string) string { return c.server.URL + "/compute/v1/" + name }

// paused answers for jobs and queues, which can be paused.
func (c *Cloud) paused(r call) (any, error) {
	if r.verb != "pause" && r.verb != "resume" {
		return c.plain(r)
	}
	found := c.held.Resources[r.key()]
	if found == nil {
		return nil, refuse(http.StatusNotFound, "not found: %s", r.path)
	}
	running := map[string]string{"cloudscheduler": "ENABLED", "cloudtasks": "RUNNING"}[r.api]
	found["state"] = map[string]string{"pause": "PAUSED", "resume": running}[r.verb]
	return found, nil
}
