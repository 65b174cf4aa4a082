package main

const (
	routes    = "internal/routing/routing.go"
	filters   = "internal/routing/filter.go"
	declared  = "catalog/catalog.go"
	loads     = "catalog/load.go"
	decodes   = "catalog/yaml.go"
	doctor    = "internal/gcp/pubsub/doctor.go"
	routesDir = "internal/routing"
	catalogs  = "catalog"
	agreement = "emulator/topology"

	filterFits = "TestAFilterFitsAndLetsThroughWhatIsTaken"
	mistakes   = "TestEachMistakeNamesFileQueueAndKey"
)

// faultsOfCatalog are those by which a message reaches a queue that it is not for, or none.
var faultsOfCatalog = []fault{
	{"a # does not go back for a word", routes, `left, right = after, from`, `left, right = after, tail`, routesDir, "TestAPatternHoldsWhatRabbitMQSaysItHolds"},
	{"a * takes no word", routes, `(w == "*" || w == have)`, `(w == have)`, routesDir, "TestAPatternHoldsWhatRabbitMQSaysItHolds"},
	{"a message for another queue is taken by its key", filters, `return alone == b.Queue`, `_ = alone`, routesDir, "TestAMessageIsForOneQueueAloneOrForThoseBoundToItsKey"},
	{"a message without a key is for all queues of the topic", filters, `return !keyed && b.Own ||`, `return !keyed ||`, routesDir, "TestAMessageIsForOneQueueAloneOrForThoseBoundToItsKey"},
	{"a filter leaves out what # stands for no word of", filters, `before = strings.TrimSuffix(before, ".")`, `_ = before`, routesDir, "TestAFilterIsTheNarrowestThatFits"},
	{"a filter is longer than Pub/Sub takes", filters, `if len(f.String()) <= maxFilterBytes {`, `if f.queue != "" {`, routesDir, filterFits},
	{"a filter leaves out what is for the queue alone", filters, `" OR ` + "`" + `
	others`, `" AND ` + "`" + `
	others`, agreement, "TestAFiltersTextSaysWhatTheSimulatorDoes"},
	{"a message put on a queue reaches the others of its topic", declared, `addressed[routing.AttrQueue] = q.ID`, `_ = routing.AttrQueue`, catalogs, "TestAMessageForOneQueueOfATopicNamesIt"},
	{"a message that waits comes back to every queue of its topic", settle, `message.Attributes = w.queue.Addressed(message.Attributes)`, `_ = message.Attributes`, pushDir, "TestAMessageOfASharedTopicComesBackToItsQueueAlone"},
	{"a replay reaches every queue of its topic", operate, `Attributes: q.Addressed(attributes)}`, `Attributes: attributes}`, lettersDir, "TestAReplayOnASharedTopicIsForTheQueueAlone"},
	{"an orphan is put back for every queue of its topic", tasks, `again.Attributes = q.Addressed(again.Attributes)`, `_ = again`, tasksDir, "TestAnOrphanOfASharedTopicIsPutBackForItsQueueAlone"},
	{"a producer's message reaches every queue of the topic", "internal/webhook/webhook.go", `m.Attributes = q.Addressed(m.Attributes)`, `_ = m`, "internal/webhook", "TestAMessageForAQueueOnASharedTopicNamesTheQueue"},
	{"what is not bound is handled", turn, `case !q.Takes(d.message.Attributes):`, `case false:`, pushDir, "TestAMessageThatIsNotBoundIsDropped"},
	{"any pattern has the event type", routes, `Narrower(p, best) < 0)`, `Narrower(p, best) > 0)`, catalogs, "TestTheHandlerOfATypeIsItsOwnElseThatOfTheNarrowestPattern"},
	{"a message may be put on a queue by the name of its dead letters", declared, `return q.ID == name || (q.Alias`, `return slices.Contains(q.DeadLetter.Aliases, name) || q.ID == name || (q.Alias`, catalogs, "TestOldNamesLeadToWhatTheyNamed"},
	{"a shared topic of disabled queues exists", declared, `return q.Enabled && q.SharedTopic == t.ID`, `return q.SharedTopic == t.ID`, catalogs, "TestASharedTopicExistsWhereOneOfItsQueuesIsEnabled"},
	{"an undeclared shared topic is accepted", loads, `r.checkQueue(place, queue, c.Topics)`, `r.checkQueue(place, queue, []Topic{{ID: queue.SharedTopic}})`, catalogs, mistakes},
	{"an unknown key is passed by", decodes, `json.RejectUnknownMembers(true)`, `json.RejectUnknownMembers(false)`, catalogs, mistakes},
	{"minutes are taken for seconds", decodes, `!durationShape.Match(unquoted)`, `false`, catalogs, mistakes},
	{"a queue's own schedule changes that of the defaults", loads, `raw, own = rawPolicy{}, map`, `raw, own = rawPolicy(inherited), map`, catalogs, "TestAQueuesScheduleLeavesThatOfTheDefaults"},
	{"the doctor looks for the topic of each queue alone", doctor, `topic != nil && !kept && !shared {`, `topic != nil && !kept {`, agreement, "TestProvisionDoctorAndSimulatorAgree"},
	{"a catalog that the worker refuses is sound", "internal/worker/worker.go", `return registry.Check(c)`, `return registry.Check(&catalog.Catalog{})`, "cmd/billhook", "TestCatalogCheckReportsWhatTheWorkerWouldRefuse"},
	{"Terraform takes more requests at once than Go", "terraform/modules/catalog/targets.tf", `t.concurrency <= 1000,`, `t.concurrency <= 100000,`, catalogs, "TestTerraformRefusesTheTargetsThatTheLoaderRefuses"},
	{"Terraform takes two questions about one path", "terraform/modules/catalog/targets.tf", `other.path == p.path]) == 1,`, `other.path == p.path]) > 0,`, catalogs, "TestTerraformRefusesTheTargetsThatTheLoaderRefuses"},
}
