package cloudtest

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// outputs has the members that only Cloud Run writes.
var outputs = []string{
	"uri", "urls", "uid", "createTime", "generation", "observedGeneration", "terminalCondition", "conditions",
	"launchStage",
	"latestReadyRevision", "latestCreatedRevision", "trafficStatuses", "reconciling", "name", "etag",
}

func (c *Cloud) deployable(r call) error {
	total, traffic := 0.0, list(r.body, "traffic")
	for _, target := range traffic {
		total += At[float64](target, "percent")
		revision := text(target, "revision")
		if revision != "" && c.held.Resources[r.key()+"/revisions/"+revision] == nil {
			return invalid("Revision named '%s' does not exist or may not have reached readiness", revision)
		}
	}
	if len(traffic) > 0 && total != 100 {
		return invalid("traffic percentages add up to %v, not to 100", total)
	}
	return nil
}

// deploy makes a revision if the template has changed. A revision that does not become ready gets no traffic.
func deploy(c *Cloud, path string, service Document) Document {
	key := "run/" + path
	if c.held.Resources[key] == nil {
		return c.ended("response", service) // the call has deleted it
	}
	if service["uid"] == nil {
		service["uid"], service["createTime"], service["launchStage"] = fmt.Sprintf("uid-%d", c.next()), start, "GA"
		service["uri"] = "https://" + last(path) + "-abcdefghij-ew.a.run.app"
		byNumber := fmt.Sprintf("https://%s-%s.%s.run.app", last(path), Number, region(path))
		service["urls"] = []any{byNumber, service["uri"]}
	}
	// Google's JSON has 64-bit numbers as strings.
	generation, _ := strconv.Atoi(text(service, "generation"))
	service["generation"], service["observedGeneration"] = strconv.Itoa(generation+1), strconv.Itoa(generation+1)
	service["etag"], service["reconciling"] = fmt.Sprintf("\"etag-%d\"", c.next()), false
	latest := c.held.Resources["run/"+text(service, "latestCreatedRevision")]
	if latest == nil || !reflect.DeepEqual(latest["template"], service["template"]) {
		id := fmt.Sprintf("%s-%05d-%03x", last(path), len(c.keys(key+"/revisions/"))+1, c.next())
		latest = Document{
			"name": path + "/revisions/" + id, "template": service["template"], "problem": c.problem(service),
		}
		c.held.Resources[key+"/revisions/"+id] = latest
		service["latestCreatedRevision"] = latest["name"]
	}
	problem := text(latest, "problem")
	condition := Document{"type": "Ready", "state": "CONDITION_SUCCEEDED", "lastTransitionTime": start}
	if problem == "" {
		service["latestReadyRevision"] = service["latestCreatedRevision"]
	} else {
		condition["state"], condition["message"], condition["revisionReason"] = "CONDITION_FAILED", problem,
			"CONTAINER_MISSING"
	}
	if len(list(service, "traffic")) == 0 {
		service["traffic"] = []any{Document{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST", "percent": 100.0}}
	}
	service["trafficStatuses"] = route(service)
	service["terminalCondition"], service["conditions"] = condition, []any{condition}
	if problem != "" {
		c.say("RUN FAILED %s: %s", key, problem)
		return c.ended("error", Document{"code": 9, "message": problem})
	}
	return c.ended("response", service)
}

// route returns the targets of the traffic. LATEST is the latest revision that became ready.
func route(service Document) (statuses []any) {
	for _, target := range list(service, "traffic") {
		status := Document{"type": text(target, "type"), "percent": At[any](target, "percent")}
		if revision := cmp.Or(text(target, "revision"),
			last(text(service, "latestReadyRevision"))); revision != "" {
			status["revision"] = revision
		}
		if tag := text(target, "tag"); tag != "" {
			status["tag"], status["uri"] = tag,
				"https://"+tag+"---"+strings.TrimPrefix(text(service, "uri"), "https://")
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// problem returns why a revision would not become ready, or an empty text.
func (c *Cloud) problem(service Document) string {
	account := text(service, "template", "serviceAccount")
	for _, container := range list(service, "template", "containers") {
		if words := c.held.Faults[text(container, "image")]; words != "" {
			return "The user-provided container failed to start and listen on the port: " + words
		}
		for _, variable := range list(container, "env") {
			ref := object(variable, "valueSource", "secretKeyRef")
			secret, number := last(text(ref, "secret")), text(ref, "version")
			version := c.held.Resources[secretsOf+secret+"/versions/"+number]
			named := "projects/" + Number + "/secrets/" + secret + "/versions/" + number
			switch state := text(version, "state"); {
			case ref == nil:
			case !c.has(secretsOf+secret, "roles/secretmanager.secretAccessor", "serviceAccount:"+account):
				return "Permission denied on secret: " + named + " for Revision service account " + account +
					". The service account used must be granted the 'Secret Manager Secret Accessor' role " +
					"(roles/secretmanager.secretAccessor) at the secret, project or higher level."
			case version == nil:
				return "Secret " + named + " was not found"
			case state != "ENABLED":
				return "Secret " + named + " is in " + state + " state."
			}
		}
	}
	return ""
}

// Serving returns the percent of a service's traffic by image.
func (c *Cloud) Serving(region, service string) map[string]int {
	key := "run/projects/" + Project + "/locations/" + region + "/services/" + service
	found := map[string]int{}
	for _, status := range list(c.Get(key), "trafficStatuses") {
		percent := At[float64](status, "percent")
		for _, container := range list(c.Get(key+"/revisions/"+text(status, "revision")), "template",
			"containers") {
			if percent > 0 {
				found[text(container, "image")] += int(percent)
			}
		}
	}
	return found
}
