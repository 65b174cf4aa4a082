package lifecycle_test

import (
	"slices"
	"strings"

	"billhook/emulator/cloudtest"
)

// look says what a webhook of PayNow's and a push of its queue would be answered by what the project holds
// now, where either would be turned away. An installed shop is looked at after each change.
func (i *installation) look(held cloudtest.State) {
	const project = "projects/" + cloudtest.Project
	wrong := func(what string) {
		if !slices.Contains(i.unanswered, what) {
			i.unanswered = append(i.unanswered, what)
		}
	}
	granted := func(key, role, to string) bool { return held.Has(key, role, "serviceAccount:"+to) }
	// serving are the revisions that have requests of a service.
	serving := func(key string) (revisions []any) {
		for _, status := range cloudtest.At[[]any](held.Resources[key], "trafficStatuses") {
			if revision := held.Resources[key+"/revisions/"+cloudtest.At[string](status,
				"revision")]; revision != nil {
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
		for _, variable := range cloudtest.At[[]any](cloudtest.At[[]any](revision, "template",
			"containers")[0], "env") {
			if cloudtest.At[string](variable, "name") == "QUEUES" &&
				!slices.Contains(strings.Split(cloudtest.At[string](variable, "value"), ","), events.ID) {
				wrong("a webhook: 404, since its queue does not run")
			}
		}
		if !granted(topic, "roles/pubsub.publisher", cloudtest.At[string](revision, "template",
			"serviceAccount")) || held.Resources[topic] == nil {
			wrong("a webhook: 503, since it cannot be published")
		}
	}

	push := cloudtest.At[any](held.Resources["pubsub/"+project+"/subscriptions/"+events.PushSubscription()],
		"pushConfig")
	name, place, _ := strings.Cut(strings.TrimPrefix(cloudtest.At[string](push, "pushEndpoint"), "https://"),
		"-"+cloudtest.Number+".")
	worker := "run/" + project + "/locations/" + strings.Split(place, ".")[0] + "/services/" + name
	switch {
	case name == "":
		wrong("a push: none, since there is no endpoint")
	case len(serving(worker)) == 0:
		wrong("a push: 404, since nothing serves at " + name)
	case !granted(worker, "roles/run.invoker", cloudtest.At[string](push, "oidcToken", "serviceAccountEmail")):
		wrong("a push: 403, since its account may not call " + name)
	}
}
