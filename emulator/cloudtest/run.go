package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

func (c *Cloud) run(r call) (any, error) {
	switch r.method {
	case http.MethodPost:
		id := r.ask("serviceId")
		if len(id) > 49 {
			return nil, refuse(http.StatusBadRequest, "Violation in CreateServiceRequest.service_id: %q must be shorter than 50 characters", id)
		}
		if err := c.deployable(r); err != nil {
			return nil, err
		}
		made, err := c.create(r, id)
		if err != nil {
			return nil, err
		}
		region := strings.Split(r.path, "/")[3]
		made["uid"], made["createTime"], made["launchStage"] = fmt.Sprintf("uid-%d", c.next()), start, "GA"
		made["uri"] = "https://" + id + "-abcdefghij-ew.a.run.app"
		made["urls"] = []any{"https://" + id + "-" + Number + "." + region + ".run.app", made["uri"]}
		return c.deploy(r.key()+"/"+id, made, nil)
	case http.MethodPatch:
		before, found := c.held.Resources[r.key()]
		if !found {
			return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
		}
		if err := c.deployable(r); err != nil {
			return nil, err
		}
		after := copied(before)
		for _, own := range []string{"template", "traffic", "labels", "annotations", "scaling", "ingress", "customAudiences", "invokerIamDisabled", "description", "defaultUriDisabled"} {
			delete(after, own)
		}
		for field, value := range copied(r.body) {
			if _, told := outputs[field]; !told {
				after[field] = value
			}
		}
		after["name"] = r.path
		c.held.Resources[r.key()] = after
		c.say("change %s", r.key())
		return c.deploy(r.key(), after, before)
	case http.MethodDelete:
		if _, err := c.remove(r); err != nil {
			return nil, err
		}
		return c.done(Document{}), nil
	}
	return c.read(r)
}

// outputs are the members that Cloud Run alone writes.
var outputs = map[string]struct{}{
	"uri": {}, "urls": {}, "uid": {}, "createTime": {}, "generation": {}, "observedGeneration": {}, "terminalCondition": {}, "conditions": {},
	"latestReadyRevision": {}, "latestCreatedRevision": {}, "trafficStatuses": {}, "reconciling": {}, "name": {}, "etag": {},
}

func (c *Cloud) deployable(r call) error {
	if account := text(r.body, "template", "serviceAccount"); !c.exists(account) {
		return refuse(http.StatusNotFound, "Service account %s does not exist", account)
	}
	total := 0.0
	for _, target := range list(r.body, "traffic") {
		percent, _ := at(target, "percent").(float64)
		total += percent
		if revision := text(target, "revision"); revision != "" {
			if _, found := c.held.Resources[r.key()+"/revisions/"+revision]; !found {
				return refuse(http.StatusBadRequest, "Revision named '%s' does not exist or may not have reached readiness", revision)
			}
		}
	}
	if traffic := list(r.body, "traffic"); len(traffic) > 0 && total != 100 {
		return refuse(http.StatusBadRequest, "traffic percentages add up to %v, not to 100", total)
	}
	return nil
}

// deploy makes a revision where the template has changed, and says what became of it. A revision
// that does not get ready leaves the traffic where it is.
func (c *Cloud) deploy(key string, service, before Document) (any, error) {
	// Google's JSON writes numbers of 64 bits as strings.
	generation, _ := strconv.Atoi(text(before, "generation"))
	service["generation"], service["observedGeneration"] = strconv.Itoa(generation+1), strconv.Itoa(generation+1)
	service["etag"] = fmt.Sprintf("\"etag-%d\"", c.next())
	service["reconciling"] = false
	problem := ""
	if before == nil || !same(before["template"], service["template"]) {
		id := fmt.Sprintf("%s-%05d-%03x", service["name"].(string)[strings.LastIndex(service["name"].(string), "/")+1:], c.revisions(key)+1, c.next())
		problem = c.problem(service)
		c.held.Resources[key+"/revisions/"+id] = Document{"name": service["name"].(string) + "/revisions/" + id, "template": service["template"], "problem": problem}
		service["latestCreatedRevision"] = service["name"].(string) + "/revisions/" + id
	} else if latest := text(service, "latestCreatedRevision"); latest != "" {
		problem = text(c.held.Resources["run/"+latest], "problem")
	}
	if problem == "" {
		service["latestReadyRevision"] = service["latestCreatedRevision"]
	}
	if len(list(service, "traffic")) == 0 {
		service["traffic"] = []any{Document{"type": latestType, "percent": 100}}
	}
	c.route(service)
	condition := Document{"type": "Ready", "state": "CONDITION_SUCCEEDED", "lastTransitionTime": start}
	if problem != "" {
		condition = Document{"type": "Ready", "state": "CONDITION_FAILED", "message": problem, "lastTransitionTime": start, "revisionReason": "CONTAINER_MISSING"}
	}
	service["terminalCondition"], service["conditions"] = condition, []any{condition}
	if problem != "" {
		c.say("RUN FAILED %s: %s", key, problem)
		return c.failed(problem), nil
	}
	return c.done(service), nil
}

const (
	latestType   = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
	revisionType = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
)

// route writes where the traffic goes: LATEST is the latest revision that got ready.
func (c *Cloud) route(service Document) {
	var statuses []any
	ready := text(service, "latestReadyRevision")
	for _, target := range list(service, "traffic") {
		status := Document{"type": text(target, "type"), "percent": at(target, "percent")}
		if revision := text(target, "revision"); revision != "" {
			status["revision"] = revision
		} else if ready != "" {
			status["revision"] = ready[strings.LastIndex(ready, "/")+1:]
		}
		if tag := text(target, "tag"); tag != "" {
			status["tag"], status["uri"] = tag, "https://"+tag+"---"+strings.TrimPrefix(text(service, "uri"), "https://")
		}
		statuses = append(statuses, status)
	}
	service["trafficStatuses"] = statuses
}

func (c *Cloud) revisions(key string) int { return len(c.keys(key + "/revisions/")) }

// problem says why a revision would not become ready, or nothing.
func (c *Cloud) problem(service Document) string {
	member := "serviceAccount:" + text(service, "template", "serviceAccount")
	for _, container := range list(service, "template", "containers") {
		if words := c.faults[text(container, "image")]; words != "" {
			return "The user-provided container failed to start and listen on the port: " + words
		}
		for _, variable := range list(container, "env") {
			ref, is := at(variable, "valueSource", "secretKeyRef").(Document)
			if !is {
				continue
			}
			secret := text(ref, "secret")
			secret = secret[strings.LastIndex(secret, "/")+1:]
			key := "secretmanager/projects/" + Project + "/secrets/" + secret
			if !c.has(key, "roles/secretmanager.secretAccessor", member) {
				return "Permission denied on secret: projects/" + Number + "/secrets/" + secret + "/versions/" + text(ref, "version") + " for Revision service account " + strings.TrimPrefix(member, "serviceAccount:") + ". The service account used must be granted the 'Secret Manager Secret Accessor' role (roles/secretmanager.secretAccessor) at the secret, project or higher level."
			}
			version := c.held.Resources[key+"/versions/"+text(ref, "version")]
			if version == nil {
				return "Secret projects/" + Number + "/secrets/" + secret + "/versions/" + text(ref, "version") + " was not found"
			}
			if state := text(version, "state"); state != "ENABLED" {
				return "Secret projects/" + Number + "/secrets/" + secret + "/versions/" + text(ref, "version") + " is in " + state + " state."
			}
		}
	}
	return ""
}

func same(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}

// Serving returns the images that take a service's traffic, each with its percent.
func (c *Cloud) Serving(region, service string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := "run/projects/" + Project + "/locations/" + region + "/services/" + service
	found := map[string]int{}
	for _, status := range list(c.held.Resources[key], "trafficStatuses") {
		percent, _ := at(status, "percent").(float64)
		if whole, is := at(status, "percent").(int); is {
			percent = float64(whole)
		}
		revision := c.held.Resources[key+"/revisions/"+text(status, "revision")]
		for _, container := range list(revision, "template", "containers") {
			if percent > 0 {
				found[text(container, "image")] += int(percent)
			}
		}
	}
	return found
}
