package lifecycle_test

import (
	"slices"
	"strings"

	"billhook/emulator/cloudtest"
)

// look says what a webhook of PayNow's and a push of its queue would be answered by what the project holds now,
// where either would be turned away. An installed shop is looked at after each change.
func (i *installation) look(held cloudtest.State) {
	events, _ := paynow(i.t, shipped(i.t))
	const project = "projects/" + cloudtest.Project
	wrong := func(what string) {
		if !slices.Contains(i.unanswered, what) {
			i.unanswered = append(i.unanswered, what)
		}
	}
	granted := func(key, role string, to any) bool {
		for _, binding := range list(held.Policies[key], "bindings") {
			if at(binding, "role") == role && slices.Contains(list(binding, "members"), any("serviceAccount:"+text(to))) {
				return true
			}
		}
		return false
	}
	// serving are the revisions that have requests of a service.
	serving := func(key string) (revisions []any) {
		for _, status := range list(held.Resources[key], "trafficStatuses") {
			if revision := held.Resources[key+"/revisions/"+text(at(status, "revision"))]; revision != nil {
				revisions = append(revisions, revision)
			}
		}
		return revisions
	}

	topic := "pubsub/" + project + "/topics/" + events.ID
	revisions := serving("run/" + project + "/locations/" + region + "/services/" + webhook)
	if len(revisions) == 0 {
		wrong("a webhook: nothing serves")
	}
	for _, revision := range revisions {
		for _, variable := range list(list(revision, "template", "containers")[0], "env") {
			if at(variable, "name") == "QUEUES" && !slices.Contains(strings.Split(text(at(variable, "value")), ","), events.ID) {
				wrong("a webhook: 404, since its queue does not run")
			}
		}
		if !granted(topic, "roles/pubsub.publisher", at(revision, "template", "serviceAccount")) || held.Resources[topic] == nil {
			wrong("a webhook: 503, since it cannot be published")
		}
	}

	push := at(held.Resources["pubsub/"+project+"/subscriptions/"+events.PushSubscription()], "pushConfig")
	name, place, _ := strings.Cut(strings.TrimPrefix(text(at(push, "pushEndpoint")), "https://"), "-"+cloudtest.Number+".")
	worker := "run/" + project + "/locations/" + strings.Split(place, ".")[0] + "/services/" + name
	switch {
	case name == "":
		wrong("a push: none, since there is no endpoint")
	case len(serving(worker)) == 0:
		wrong("a push: 404, since nothing serves at " + name)
	case !granted(worker, "roles/run.invoker", at(push, "oidcToken", "serviceAccountEmail")):
		wrong("a push: 403, since its account may not call " + name)
	}
}

func at(of any, path ...string) any {
	for _, name := range path {
		members, _ := of.(cloudtest.Document)
		of = members[name]
	}
	return of
}

func list(of any, path ...string) []any {
	values, _ := at(of, path...).([]any)
	return values
}

func text(of any) string {
	value, _ := of.(string)
	return value
}
