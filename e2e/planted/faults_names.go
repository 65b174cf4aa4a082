package main

const names = "internal/gcp/pubsub/names.go"

// faultsOfNames are those of several installations in a project, and of what is off.
var faultsOfNames = []fault{
	{"an installation's topics are the project's", names, `"/topics/" + n.id(id)`, `"/topics/" + id`, pubsubDir, "TestInstallationsOfOneProjectHaveTopicsAndSubscriptionsOfTheirOwn"},
	{"an installation counts what waits for another", names, `return strings.CutPrefix(id, n.prefix())`, `return strings.TrimPrefix(id, n.prefix()), true`, pubsubDir, "TestBacklogsAreThoseOfTheInstallation"},
	{"a message goes to the installation without a name", "internal/gcp/pubsub/publisher.go", `p.begin(p.names.id(topic))`, `p.begin(topic)`, pubsubDir, "TestAPublisherPublishesToItsInstallation"},
	{"an installation may have any name", names, `case !installationName.MatchString(n.Installation):`, `case false:`, pubsubDir, "TestANameThatCannotStandBeforeAnIDIsRefused"},
	{"the tasks move to the first pool in silence", only, `case len(runs) > 1:`, `case len(runs) > 100:`, catalogs, "TestThePoolOfTheTasksIsNamedWhereSeveralRun"},
	{"what waits for a queue that is off is not counted", "internal/tasks/backlogs.go", `		if !known {
`, `		if !known || !q.Enabled {
`, tasksDir, "TestTheBacklogsOfQueuesAreWrittenInOneDocument"},
}
