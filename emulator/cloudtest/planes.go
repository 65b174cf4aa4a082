package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// collection is how an API treats the resources of one kind. What it does not say is so for all: they are
// created under a path and an id, read, changed, deleted and listed.
type collection struct {
	// ids are the parameters of the query that have a new resource's id; none: it is the end of its own name, or
	// a number.
	ids []string
	// short: it is called by its id alone in what the API writes.
	short bool
	// new are the members that the API adds to a new resource, and old a resource that was there before anybody
	// wrote it.
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

// planes are the collections by API and name; * is any other.
var planes = map[string]collection{
	"cloudscheduler/jobs": {new: Document{"state": "ENABLED", "retryConfig": Document{
		"maxRetryDuration": "0s", "minBackoffDuration": "5s", "maxBackoffDuration": "3600s", "maxDoublings": 5,
	}}},
	"cloudtasks/queues":     {new: Document{"state": "RUNNING"}},
	"cloudbilling/*":        {old: Document{"projectId": Project, "billingAccountName": "billingAccounts/0", "billingEnabled": true}},
	"secretmanager/secrets": {ids: []string{"secretId"}},
	"monitoring/*":          {ids: []string{"serviceLevelObjectiveId", "serviceId"}, new: Document{"etag": "etag"}},
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
func (c *Cloud) plain(r call) (answer Document, err error) {
	kind, of := "", collection{}
	parts := strings.Split("//"+r.path, "/")
	for _, name := range []string{"*", parts[len(parts)-2], r.last()} { // the best is the last
		if found, has := planes[r.api+"/"+name]; has {
			kind, of = name, found
		}
	}
	if err := c.plainly(r); err != nil {
		return nil, err
	}
	there := c.held.Resources[r.key()] != nil
	switch {
	case r.method == http.MethodGet && !there && of.old != nil && r.last() != kind:
		answer = copied(of.old)
		answer["name"] = r.path
		return answer, nil
	case r.method == http.MethodGet:
		return c.read(r)
	case r.method == http.MethodDelete:
		if err = c.unused(r, of); err == nil {
			answer, err = c.remove(r)
		}
	case r.method == http.MethodPost && (r.verb == "" || r.verb == "createAsync"):
		if answer, err = c.make(&r, of); err == nil && of.short {
			answer["name"] = r.last()
		}
	default:
		if !there && of.old != nil {
			c.held.Resources[r.key()] = copied(of.old)
		}
		if answer, err = c.change(r); err == nil && of.short {
			answer["name"] = r.last()
		}
		if ttl := object(answer, "ttlConfig"); ttl != nil {
			ttl["state"] = "ACTIVE"
		}
	}
	if err == nil && of.ends != nil {
		answer = of.ends(c, r.path, answer)
	}
	return answer, err
}

// make creates a resource, whose path the call has then.
func (c *Cloud) make(r *call, of collection) (Document, error) {
	id := ""
	for _, parameter := range of.ids {
		id += r.ask(parameter)
	}
	if id == "" {
		id = last(text(r.body, "name"))
	}
	made, err := c.create(*r, id)
	if err != nil {
		return nil, err
	}
	for field, value := range copied(of.new) {
		if made[field] == nil {
			made[field] = value
		}
	}
	if r.path = text(made, "name"); r.api == "compute" {
		made["id"], made["selfLink"] = fmt.Sprint(c.next()), c.link(r.path)
	}
	return made, nil
}

// unused refuses to delete what another resource names.
func (c *Cloud) unused(r call, of collection) error {
	named := "/" + strings.TrimPrefix(r.path, "projects/"+Project+"/") + `"`
	for _, key := range c.keys(r.api + "/") {
		if of.linked && key != r.key() && strings.Contains(string(must(json.Marshal(c.held.Resources[key]))), named) {
			return invalid("The resource '%s' is already being used by '%s'", r.path, key)
		}
	}
	return nil
}

var (
	logMetric = regexp.MustCompile(`logging\.googleapis\.com/user/([A-Za-z0-9_/-]+)`)
	computed  = regexp.MustCompile(`/compute/v1/([^"]+)"`)
)

// plainly is what the planes refuse besides.
func (c *Cloud) plainly(r call) error {
	database, _, inside := strings.Cut(r.key(), "/collectionGroups/")
	switch {
	case r.method == http.MethodDelete && text(c.held.Resources[r.key()], "deleteProtectionState") == "DELETE_PROTECTION_ENABLED":
		return invalid("Database %s cannot be deleted: it has delete protection enabled", r.path)
	case inside && c.held.Resources[database] == nil:
		return notFound("The database %s does not exist", database)
	case r.method == http.MethodGet || r.method == http.MethodDelete:
		return nil
	}
	if err := c.mustExist(text(r.body, "httpTarget", "oidcToken", "serviceAccountEmail")); err != nil {
		return err
	}
	written := string(must(json.Marshal(r.body)))
	for _, found := range computed.FindAllStringSubmatch(written, -1) {
		if c.held.Resources["compute/"+found[1]] == nil {
			return notFound("The resource '%s' was not found", found[1])
		}
	}
	if strings.Contains(r.path, "/alertPolicies") {
		return c.alerting(r, written)
	}
	return nil
}

// alerting is what Cloud Monitoring refuses of an alert. It names its conditions.
func (c *Cloud) alerting(r call, written string) error {
	for _, found := range logMetric.FindAllStringSubmatch(written, -1) {
		key := "logging/projects/" + Project + "/metrics/" + found[1]
		if c.held.Resources[key] == nil || slices.Contains(c.held.Hidden, key) {
			return notFound("Cannot find metric that matches type = \"logging.googleapis.com/user/%s\". "+
				"If a metric was created recently, it could take up to 10 minutes to become available.", found[1])
		}
	}
	conditions := list(r.body, "conditions")
	if n := len(conditions); n > 6 {
		return invalid("Field alert_policy.conditions had an invalid value: a policy has at most 6 conditions, not %d", n)
	}
	for _, channel := range list(r.body, "notificationChannels") {
		if c.held.Resources[fmt.Sprint("monitoring/", channel)] == nil {
			return notFound("Cannot find notification channel %s", channel)
		}
	}
	for _, condition := range conditions {
		if text(condition, "name") == "" {
			object(condition)["name"] = fmt.Sprintf("projects/%s/alertPolicies/x/conditions/%d", Project, c.next())
		}
	}
	return nil
}

// compute answers for load balancers, whose parts have calls of their own.
func (c *Cloud) compute(r call) (Document, error) {
	for ending, member := range map[string]string{"/setSecurityPolicy": "securityPolicy", "/setLabels": "labels"} {
		if of, is := strings.CutSuffix(r.path, ending); is {
			found := c.held.Resources["compute/"+of]
			if found == nil {
				return nil, notFound("The resource '%s' was not found", of)
			}
			found[member], found["labelFingerprint"] = r.body[member], fmt.Sprint(c.next())
			return computing(c, of, nil), nil
		}
	}
	return c.plain(r)
}

func (c *Cloud) link(name string) string { return c.server.URL + "/compute/v1/" + name }

// paused answers for jobs and queues, which the provider pauses or resumes whenever it has written them.
func (c *Cloud) paused(r call) (Document, error) {
	running := map[string]string{"cloudscheduler": "ENABLED", "cloudtasks": "RUNNING"}[r.api]
	state := map[string]string{"pause": "PAUSED", "resume": running}[r.verb]
	if state == "" {
		return c.plain(r)
	}
	found, err := c.find(r)
	if err == nil {
		found["state"] = state
	}
	return found, err
}
