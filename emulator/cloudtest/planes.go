package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// collection describes how an API treats one kind of resource, as far as it differs from the default.
type collection struct {
	// ids has the parameters or members with a new id; else the name ends with it. email: it is an account.
	ids   []string
	email bool
	// within is the member of the body with the resource; empty or absent: the body is the resource.
	within string
	// called returns the resource's name in the API's answers; nil: its path.
	called func(path string) string
	// new has members that the API adds; old is the resource that exists before anybody writes it.
	new, old Document
	// own has the members that only the API writes. If it is set, a change without a mask removes all other
	// members that the body lacks.
	own []string
	// ends returns the ended operation that the API answers with; nil: it answers with the resource.
	ends func(c *Cloud, path string, of Document) Document
	// linked: it cannot be deleted while another resource names it. taken: its name stays taken after deletion.
	linked, taken bool
	// short and long bound the length of a new id; long 0: no bounds. fixed is a member that cannot be changed.
	short, long int
	fixed       string
	// refuses returns a further mistake in a resource before it is written.
	refuses func(c *Cloud, r call) error
}

func operation(c *Cloud, _ string, of Document) Document { return c.ended("response", of) }

func computing(c *Cloud, path string, _ Document) Document {
	return Document{
		"kind": "compute#operation", "name": fmt.Sprintf("operation-%d", c.next()), "status": "DONE",
		"progress": 100, "targetLink": c.link(path),
	}
}

func byNumber(path string) string {
	return strings.Replace(path, "projects/"+Project+"/", "projects/"+Number+"/", 1)
}

// planes has the collections by API and name; * stands for all other names.
var planes = map[string]collection{
	"artifactregistry/repositories": {
		ids: []string{"repositoryId", "repository_id"}, ends: operation, new: Document{"createTime": start},
	},
	"storage/b": {ids: []string{"name"}, called: last, new: Document{"metageneration": "1"}},
	"cloudscheduler/jobs": {new: Document{"state": "ENABLED", "retryConfig": Document{
		"maxRetryDuration": "0s", "minBackoffDuration": "5s", "maxBackoffDuration": "3600s", "maxDoublings": 5,
	}}},
	"cloudtasks/queues": {new: Document{"state": "RUNNING"}},
	"cloudbilling/*": {
		old: Document{"projectId": Project, "billingAccountName": "billingAccounts/0", "billingEnabled": true},
	},
	"iam/serviceAccounts": {
		ids: []string{"accountId"}, within: "serviceAccount", email: true, short: 6, long: 30,
	},
	"iam/roles": {ids: []string{"roleId"}, within: "role", taken: true},
	"run/services": {
		ids: []string{"serviceId"}, long: 49, own: outputs, refuses: (*Cloud).deployable, ends: deploy,
	},
	"secretmanager/secrets": {ids: []string{"secretId"}, called: byNumber, new: Document{"createTime": start}},
	"monitoring/alertPolicies": {
		refuses: (*Cloud).alerting, new: Document{"etag": "etag"},
	},
	"monitoring/*":  {ids: []string{"serviceLevelObjectiveId", "serviceId"}, new: Document{"etag": "etag"}},
	"pubsub/topics": {within: "topic", new: Document{"state": "ACTIVE"}, short: 3, long: 255},
	"pubsub/subscriptions": {
		within: "subscription", short: 3, long: 255, fixed: "filter",
		new: Document{"state": "ACTIVE", "expirationPolicy": Document{"ttl": "2678400s"}},
	},
	"logging/buckets": {
		ids: []string{"bucketId"}, ends: operation,
		new: Document{"lifecycleState": "ACTIVE"}, old: Document{"retentionDays": 30, "lifecycleState": "ACTIVE"},
	},
	"logging/*": {called: last},
	// Every field exists, even if it was never written.
	"firestore/fields":  {old: Document{}, refuses: (*Cloud).field, ends: operation},
	"firestore/indexes": {new: Document{"state": "READY"}, refuses: (*Cloud).inDatabase, ends: operation},
	"firestore/databases": {ids: []string{"databaseId"}, ends: operation, new: Document{
		"state": "READY", "uid": "uid", "etag": "etag", "createTime": start, "earliestVersionTime": start,
		"versionRetentionPeriod": "604800s", "keyPrefix": "",
	}},
	"compute/addresses": {called: last, linked: true, ends: computing, new: Document{
		"fingerprint": "fp", "address": "203.0.113.7", "status": "RESERVED",
	}},
	"compute/*": {called: last, linked: true, ends: computing, new: Document{"fingerprint": "fp"}},
}

const start = "2026-01-01T00:00:00Z"

// plain answers a call by the table planes.
func (c *Cloud) plain(r call) (answer Document, err error) {
	kind := ""
	parts := strings.Split("//"+r.path, "/")
	for _, name := range []string{"*", parts[len(parts)-2], last(r.path)} { // the last match wins
		if found, has := planes[r.api+"/"+name]; has {
			kind, r.collection = name, found
		}
	}
	there := c.held.Resources[r.key()]
	states := map[string]any{"pause": "PAUSED", "resume": r.new["state"]}
	switch {
	case r.method == http.MethodGet && there == nil && r.old != nil && last(r.path) != kind:
		answer = copied(r.old)
		answer["name"] = r.path
		return answer, nil
	case r.method == http.MethodGet:
		return c.read(r)
	case there != nil && states[r.verb] != nil:
		there["state"] = states[r.verb]
		return there, nil
	case there != nil && r.verb == "addVersion":
		return c.addVersion(last(r.path)), nil
	case there != nil && r.verb == "undelete":
		delete(there, "deleted")
		return there, nil
	case there != nil && strings.HasPrefix(r.verb, "set"):
		member := strings.ToLower(r.verb[3:4]) + r.verb[4:]
		there[member], there["labelFingerprint"] = r.body[member], fmt.Sprint(c.next())
		answer = there
	case r.method == http.MethodDelete:
		answer, err = c.delete(r)
	default:
		answer, err = c.write(&r)
	}
	if err == nil && r.ends != nil {
		answer = r.ends(c, r.path, answer)
	}
	return answer, err
}

// write creates or changes a resource, and sets the call's path to the resource's path.
func (c *Cloud) write(r *call) (written Document, err error) {
	id := ""
	for _, name := range r.ids {
		id += r.query.Get(name) + text(r.body, name)
	}
	if inner := object(r.body, r.within); inner != nil {
		r.body = inner
	}
	creates := r.method == http.MethodPost && (r.verb == "" || r.verb == "createAsync")
	if r.method == http.MethodPut && r.api == "pubsub" { // in other APIs a PUT replaces
		creates, id = true, last(r.path)
	}
	switch err = c.refers(*r); {
	case err != nil:
	case creates && r.long > 0 && (len(id) < r.short || len(id) > r.long):
		err = invalid("%q must be %d to %d characters", id, r.short, r.long)
	case !creates && r.fixed != "" && slices.Contains(strings.Split(r.query.Get("updateMask"), ","), r.fixed):
		err = invalid("The %s cannot be changed", r.fixed)
	case r.refuses != nil:
		err = r.refuses(c, *r)
	}
	switch {
	case err != nil:
	case creates:
		written, err = c.create(r, id)
	default:
		written, err = c.change(*r)
	}
	if ttl := object(written, "ttlConfig"); ttl != nil {
		ttl["state"] = "ACTIVE"
	}
	if err == nil && r.called != nil {
		written["name"] = r.called(r.path)
	}
	return written, err
}

// references has the forms in which resources name others that must exist, and the errors if they do not.
var references = []struct {
	in        string
	named     *regexp.Regexp
	key, says string
}{
	{"", regexp.MustCompile(`/compute/v1/([^"]+)"`), "compute/", "The resource '%s' was not found"},
	{"", regexp.MustCompile(`"(projects/[^"/]+/topics/[^"]+)"`), "pubsub/", "Resource not found (resource=%s)."},
	{
		"", regexp.MustCompile(`"(projects/[^"/]+/notificationChannels/[^"]+)"`), "monitoring/",
		"Cannot find notification channel %s",
	},
	{
		"", regexp.MustCompile(`"serviceAccount(?:Email)?":"([^"]+)"`), "iam/projects/" + Project +
			"/serviceAccounts/",
		"Service account %s does not exist",
	},
	{
		"/alertPolicies", regexp.MustCompile(`logging\.googleapis\.com/user/([A-Za-z0-9_/-]+)`),
		"logging/projects/" + Project + "/metrics/",
		"Cannot find metric that matches type = \"logging.googleapis.com/user/%s\". " +
			"If a metric was created recently, it could take up to 10 minutes to become available.",
	},
}

// refers refuses a resource that names another one that does not exist or is not visible yet.
func (c *Cloud) refers(r call) error {
	written := string(must(json.Marshal(r.body)))
	for _, reference := range references {
		for _, found := range reference.named.FindAllStringSubmatch(written, -1) {
			key := reference.key + found[1]
			if strings.Contains(r.path, reference.in) && key != r.key() &&
				(c.held.Resources[key] == nil || slices.Contains(c.held.Hidden, key)) {
				return notFound(reference.says, found[1])
			}
		}
	}
	return nil
}

// inDatabase refuses a resource in a database that does not exist.
func (c *Cloud) inDatabase(r call) error {
	if database, _, _ := strings.Cut(r.key(), "/collectionGroups/"); c.held.Resources[database] == nil {
		return notFound("The database %s does not exist", database)
	}
	return nil
}

// field refuses a time to live on the field *, which means all fields of a collection.
func (c *Cloud) field(r call) error {
	masked := strings.Contains(r.query.Get("updateMask"), "ttlConfig")
	if last(r.path) == "*" && (masked || object(r.body, "ttlConfig") != nil) {
		return invalid("Updating ttl other than single field level is not supported")
	}
	return c.inDatabase(r)
}

// alerting gives names to the conditions of an alert.
func (c *Cloud) alerting(r call) error {
	for _, condition := range list(r.body, "conditions") {
		if text(condition, "name") == "" {
			object(condition)["name"] = fmt.Sprintf("projects/%s/alertPolicies/x/conditions/%d", Project, c.next())
		}
	}
	return nil
}

func (c *Cloud) link(name string) string { return c.server.URL + "/compute/v1/" + name }

const secretsOf = "secretmanager/projects/" + Project + "/secrets/"

// AddVersion adds a version to a secret, like gcloud secrets versions add, but without a value.
func (c *Cloud) AddVersion(secret string) {
	c.Change(func(*State) { c.addVersion(secret) })
}

func (c *Cloud) addVersion(secret string) Document {
	number := fmt.Sprint(len(c.keys(secretsOf+secret+"/versions/")) + 1)
	version := Document{
		"name": "projects/" + Number + "/secrets/" + secret + "/versions/" + number, "state": "ENABLED",
		"createTime":                     start,
		"clientSpecifiedPayloadChecksum": true, // the sender's checksum was right
	}
	c.held.Resources[secretsOf+secret+"/versions/"+number] = version
	c.say("create %s%s/versions/%s", secretsOf, secret, number)
	return version
}
