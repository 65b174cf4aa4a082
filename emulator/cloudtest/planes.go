package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// scheduler answers for Cloud Scheduler.
func (c *Cloud) scheduler(r call) (any, error) {
	switch {
	case r.verb == "pause" || r.verb == "resume":
		job, found := c.held.Resources[r.key()]
		if !found {
			return nil, refuse(http.StatusNotFound, "Job not found: %s", r.path)
		}
		job["state"] = map[string]string{"pause": "PAUSED", "resume": "ENABLED"}[r.verb]
		return job, nil
	case r.method == http.MethodPost || r.method == http.MethodPatch:
		if email := text(r.body, "httpTarget", "oidcToken", "serviceAccountEmail"); email != "" && !c.exists(email) {
			return nil, refuse(http.StatusNotFound, "Service account %s does not exist", email)
		}
		if r.method == http.MethodPatch {
			return c.change(r)
		}
		name := text(r.body, "name")
		made, err := c.create(r, name[strings.LastIndex(name, "/")+1:])
		if err != nil {
			return nil, err
		}
		made["state"] = "ENABLED"
		if made["retryConfig"] == nil {
			made["retryConfig"] = Document{"maxRetryDuration": "0s", "minBackoffDuration": "5s", "maxBackoffDuration": "3600s", "maxDoublings": 5}
		}
		return made, nil
	}
	return c.plain(r)
}

// tasks answers for Cloud Tasks. A queue's name stays taken for days after its end: this is what
// an apply after a destroy meets.
func (c *Cloud) tasks(r call) (any, error) {
	switch {
	case r.verb == "pause" || r.verb == "resume":
		queue, found := c.held.Resources[r.key()]
		if !found {
			return nil, refuse(http.StatusNotFound, "Queue does not exist: %s", r.path)
		}
		queue["state"] = map[string]string{"pause": "PAUSED", "resume": "RUNNING"}[r.verb]
		return queue, nil
	case r.method == http.MethodPost:
		name := text(r.body, "name")
		made, err := c.create(r, name[strings.LastIndex(name, "/")+1:])
		if err != nil {
			return nil, err
		}
		made["state"] = "RUNNING"
		return made, nil
	}
	return c.plain(r)
}

var logMetric = regexp.MustCompile(`logging\.googleapis\.com/user/([A-Za-z0-9_/-]+)`)

// monitoring answers for Cloud Monitoring. A condition on a log metric that nobody has made is refused.
func (c *Cloud) monitoring(r call) (any, error) {
	if r.method != http.MethodPost && r.method != http.MethodPatch && r.method != http.MethodPut {
		return c.plain(r)
	}
	if strings.Contains(r.path, "/alertPolicies") {
		written, err := json.Marshal(r.body)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "%v", err)
		}
		for _, found := range logMetric.FindAllStringSubmatch(string(written), -1) {
			key := "logging/projects/" + Project + "/metrics/" + found[1]
			if _, is := c.held.Resources[key]; !is || slices.Contains(c.hidden, key) {
				return nil, refuse(http.StatusNotFound, "Cannot find metric that matches type = \"logging.googleapis.com/user/%s\". If a metric was created recently, it could take up to 10 minutes to become available.", found[1])
			}
		}
		if n := len(list(r.body, "conditions")); n > 6 {
			return nil, refuse(http.StatusBadRequest, "Field alert_policy.conditions had an invalid value: a policy has at most 6 conditions, not %d", n)
		}
		for _, channel := range list(r.body, "notificationChannels") {
			name, _ := channel.(string)
			if _, is := c.held.Resources["monitoring/"+name]; !is {
				return nil, refuse(http.StatusNotFound, "Cannot find notification channel %s", name)
			}
		}
		for _, condition := range list(r.body, "conditions") {
			if text(condition, "name") == "" {
				condition.(Document)["name"] = fmt.Sprintf("projects/%s/alertPolicies/x/conditions/%d", Project, c.next())
			}
		}
	}
	if r.method == http.MethodPost {
		id := r.ask("serviceLevelObjectiveId")
		if id == "" {
			id = r.ask("serviceId")
		}
		made, err := c.create(r, id)
		if err == nil && strings.HasSuffix(r.path, "/dashboards") {
			made["etag"] = fmt.Sprintf("etag%d", c.next())
		}
		return made, err
	}
	return c.change(r)
}

// logging answers for Cloud Logging: metrics, which have short names, and what a project always has.
func (c *Cloud) logging(r call) (any, error) {
	switch {
	case r.verb == "createAsync":
		made, err := c.create(r, r.ask("bucketId"))
		if err != nil {
			return nil, err
		}
		made["lifecycleState"] = "ACTIVE"
		return c.done(made), nil
	case r.method == http.MethodPost && (r.last() == "metrics" || r.last() == "exclusions" || r.last() == "sinks"):
		id := text(r.body, "name")
		made, err := c.create(r, id)
		if err != nil {
			return nil, err
		}
		made["name"] = id
		return made, nil
	case r.method == http.MethodPut || r.method == http.MethodPatch:
		if _, found := c.held.Resources[r.key()]; !found && strings.HasSuffix(r.path, "/buckets/_Default") {
			c.held.Resources[r.key()] = Document{"retentionDays": 30, "lifecycleState": "ACTIVE"}
		}
		changed, err := c.change(r)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(r.path, "/buckets/") {
			changed["name"] = r.last()
		}
		return changed, nil
	case r.method == http.MethodGet && strings.HasSuffix(r.path, "/buckets/_Default") && c.held.Resources[r.key()] == nil:
		return Document{"name": r.path, "retentionDays": 30, "lifecycleState": "ACTIVE"}, nil
	}
	return c.plain(r)
}

// firestore answers for Firestore's databases, indexes, fields and backup schedules.
func (c *Cloud) firestore(r call) (any, error) {
	database, _, inside := strings.Cut(r.key(), "/collectionGroups/")
	if !inside {
		database, _, inside = strings.Cut(r.key(), "/backupSchedules")
	}
	if _, found := c.held.Resources[database]; inside && !found {
		return nil, refuse(http.StatusNotFound, "The database %s does not exist", database)
	}
	switch r.method {
	case http.MethodPost:
		made, err := c.create(r, r.ask("databaseId"))
		if err != nil {
			return nil, err
		}
		made["state"] = "READY"
		if strings.HasSuffix(r.path, "/databases") {
			made["uid"], made["etag"], made["createTime"] = fmt.Sprintf("uid-%d", c.next()), "etag", "2026-01-01T00:00:00Z"
			made["earliestVersionTime"], made["versionRetentionPeriod"], made["keyPrefix"] = "2026-01-01T00:00:00Z", "604800s", ""
		}
		if strings.HasSuffix(r.path, "/backupSchedules") {
			return made, nil
		}
		return c.done(made), nil
	case http.MethodPatch:
		if _, found := c.held.Resources[r.key()]; !found && strings.Contains(r.path, "/fields/") {
			c.held.Resources[r.key()] = Document{} // every field is there, and most never written
		}
		changed, err := c.change(r)
		if err != nil {
			return nil, err
		}
		if ttl, is := changed["ttlConfig"].(Document); is {
			ttl["state"] = "ACTIVE"
		}
		if strings.Contains(r.path, "/backupSchedules/") {
			return changed, nil
		}
		return c.done(changed), nil
	case http.MethodDelete:
		if text(c.held.Resources[r.key()], "deleteProtectionState") == "DELETE_PROTECTION_ENABLED" {
			return nil, refuse(http.StatusBadRequest, "Database %s cannot be deleted: it has delete protection enabled", r.path)
		}
		for _, key := range c.keys(r.key() + "/") {
			c.forget(key)
		}
		if _, err := c.remove(r); err != nil {
			return nil, err
		}
		if strings.Contains(r.path, "/backupSchedules/") {
			return Document{}, nil
		}
		return c.done(Document{}), nil
	}
	return c.read(r)
}

// compute answers for load balancers. What another resource names cannot be deleted.
func (c *Cloud) compute(r call) (any, error) {
	ended := func(name string) Document {
		return Document{"kind": "compute#operation", "name": fmt.Sprintf("operation-%d", c.next()), "status": "DONE", "progress": 100, "targetLink": c.link(name)}
	}
	switch r.method {
	case http.MethodPost:
		if r.verb == "" && strings.Contains(r.path, "/backendServices/") || strings.HasSuffix(r.path, "/setSecurityPolicy") {
			service := strings.TrimSuffix(r.path, "/setSecurityPolicy")
			if found := c.held.Resources["compute/"+service]; found != nil {
				found["securityPolicy"] = text(r.body, "securityPolicy")
			}
			return ended(service), nil
		}
		if of, is := strings.CutSuffix(r.path, "/setLabels"); is {
			found := c.held.Resources["compute/"+of]
			if found == nil {
				return nil, refuse(http.StatusNotFound, "The resource '%s' was not found", of)
			}
			found["labels"], found["labelFingerprint"] = r.body["labels"], fmt.Sprint(c.next())
			return ended(of), nil
		}
		if missing := c.unknownLink(r.body); missing != "" {
			return nil, refuse(http.StatusNotFound, "The resource '%s' was not found", missing)
		}
		id := text(r.body, "name")
		made, err := c.create(r, id)
		if err != nil {
			return nil, err
		}
		made["name"], made["selfLink"], made["id"], made["fingerprint"] = id, c.link(r.path+"/"+id), fmt.Sprint(c.next()), "fp"
		if strings.HasSuffix(r.path, "/addresses") {
			made["address"], made["status"] = "203.0.113.7", "RESERVED"
		}
		return ended(r.path + "/" + id), nil
	case http.MethodPatch, http.MethodPut:
		changed, err := c.change(r)
		if err != nil {
			return nil, err
		}
		changed["name"] = r.last()
		return ended(r.path), nil
	case http.MethodDelete:
		for _, key := range c.keys("compute/") {
			written, err := json.Marshal(c.held.Resources[key])
			if err == nil && key != r.key() && strings.Contains(string(written), "/"+r.path+`"`) {
				return nil, refuse(http.StatusBadRequest, "The resource '%s' is already being used by '%s'", r.path, strings.TrimPrefix(key, "compute/"))
			}
		}
		if _, err := c.remove(r); err != nil {
			return nil, err
		}
		return ended(r.path), nil
	}
	return c.read(r)
}

// link is a resource's address, as the others name it.
func (c *Cloud) link(name string) string { return c.server.URL + "/compute/v1/" + name }

// unknownLink finds a link to what is not there.
func (c *Cloud) unknownLink(of any) string {
	switch value := of.(type) {
	case string:
		_, name, is := strings.Cut(value, "/compute/v1/")
		if _, found := c.held.Resources["compute/"+name]; is && !found {
			return name
		}
	case []any:
		for _, each := range value {
			if missing := c.unknownLink(each); missing != "" {
				return missing
			}
		}
	case Document:
		for _, each := range value {
			if missing := c.unknownLink(each); missing != "" {
				return missing
			}
		}
	}
	return ""
}
