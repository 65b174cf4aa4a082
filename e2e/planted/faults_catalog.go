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

	filterFits   = "TestAFilterFitsAndLetsThroughWhatIsTaken"
	mistakes     = "TestEachMistakeNamesFileQueueAndKey"
	targetLimits = "internal/delivery/limits.go"
	batch        = "internal/handler/batch.go"
	targetFile   = "catalog/targets.go"
	targetDir    = "catalog"
	batchDir     = "internal/handler"
	gathers      = "TestAttemptsAreGatheredUntilThereAreEnoughOrTheirTimeIsOver"
	ownItem      = "TestEachAttemptIsAnsweredByItsOwnItem"
	leftAlone    = "TestATargetThatFailsIsLeftAlone"
	targetKeys   = "TestEachMistakeOfATargetNamesFileTargetAndKey"
)

// faultsOfCatalog are those of queues, topics, targets and batches.
var faultsOfCatalog = []fault{
	// Those by which a message reaches a queue that it is not for, or none.
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
	{"a producer's message reaches every queue of the topic", "internal/webhook/webhook.go", `out.message.Attributes = out.queue.Addressed(out.message.Attributes)`, `_ = out`, "internal/webhook", "TestAMessageForAQueueOnASharedTopicNamesTheQueue"},
	{"what is not bound is handled", turn, `case !q.Takes(d.message.Attributes):`, `case false:`, pushDir, "TestAMessageThatIsNotBoundIsDropped"},
	{"any pattern has the event type", routes, `Narrower(p, best) < 0)`, `Narrower(p, best) > 0)`, catalogs, "TestTheHandlerOfATypeIsItsOwnElseThatOfTheNarrowestPattern"},
	{"a message may be put on a queue by the name of its dead letters", declared, `return q.ID == name || (q.Alias`, `return slices.Contains(q.DeadLetter.Aliases, name) || q.ID == name || (q.Alias`, catalogs, "TestOldNamesLeadToWhatTheyNamed"},
	{"a shared topic of disabled queues exists", declared, `return q.Enabled && q.SharedTopic == t.ID`, `return q.SharedTopic == t.ID`, catalogs, "TestASharedTopicExistsWhereOneOfItsQueuesIsEnabled"},
	{"an undeclared shared topic is accepted", loads, `r.checkQueue(place, queue, c.Topics)`, `r.checkQueue(place, queue, []Topic{{ID: queue.SharedTopic}})`, catalogs, mistakes},
	{"an unknown key is passed by", decodes, `json.RejectUnknownMembers(true)`, `json.RejectUnknownMembers(false)`, catalogs, mistakes},
	{"minutes are taken for seconds", decodes, `!durationShape.Match(unquoted)`, `false`, catalogs, mistakes},
	{"a queue's own schedule changes that of the defaults", loads, `raw, own = rawPolicy{}, map`, `raw, own = rawPolicy(inherited), map`, catalogs, "TestAQueuesScheduleLeavesThatOfTheDefaults"},
	{"the doctor looks for the topic of each queue alone", doctor, `topic != nil && !kept && !shared {`, `topic != nil && !kept {`, agreement, "TestProvisionDoctorAndSimulatorAgree"},
	{"a catalog that the worker refuses is sound", "internal/worker/worker.go", `registry.Check(&own))`, `registry.Check(&catalog.Catalog{}))`, "cmd/billhook", "TestCatalogCheckReportsWhatTheWorkerWouldRefuse"},
	// Those of posts to services, of what services are spared, and of batches.
	// What is posted where.
	{"a post goes to the place of the question", notify, `Path: p.post.Path, ID`, `Path: p.post.Reconcile, ID`, notifyDir,
		"TestTheWebhookIsWhatTheCalleeWasPromised"},
	{"a question is about another event", notify, `strings.Replace(p.post.Reconcile, "{id}", key, 1)`, `strings.Replace(p.post.Reconcile, "{id}", event.ID, 1)`, notifyDir, "TestAskedWhatBecameOfIt"},
	{"a target without a question is asked", notify, `answer.Status == http.StatusConflict && p.post.Reconcile != "" {`, `answer.Status == http.StatusConflict {`, notifyDir,
		"TestAConflictWithoutAQuestionIsARefusal"},
	{"Standard Webhooks have no id", callee, `t.signer.Sign(r.ID, r.Body`, `t.signer.Sign("", r.Body`, notifyDir, "TestADocumentIsWhatTheCalleeWasPromised"},
	{"another body is posted under other names", "internal/contract/formats.go", `{"source_event_id", "eventId", true}`, `{"eventId", "eventId", true}`, notifyDir, "TestADocumentIsWhatTheCalleeWasPromised"},
	{"a worker starts without the way to its target", notify, `if at == "" || len(secrets) == 0 {`, `if at == "" && len(secrets) == 0 {`, notifyDir,
		"TestWhatIsMissingForATargetIsToldAtOnceAndWithoutItsSecret"},

	// What a target is spared.
	{"a private address is anybody's", targetLimits, `dialer.Control, proxy = public, nil`, `proxy = nil`, notifyDir, "TestOnlyAnInternalTargetIsDialledAtAPrivateAddress"},
	{"an address in another form is public", targetLimits, `at.Addr().Unmap()`, `at.Addr()`, notifyDir, "TestOnlyAnInternalTargetIsDialledAtAPrivateAddress"},
	{"who is turned away takes a turn", targetLimits, `turn.CancelAt(now)`, `_ = turn`, notifyDir, "TestATargetIsAskedNoMoreOftenThanItsRate"},
	{"an open breaker lets all through", targetLimits, `MaxRequests: 1,`, `MaxRequests: 1000,`, notifyDir, "TestAnOpenBreakerLetsOneThrough"},
	{"a refusal is a failure of the target", targetLimits, `return err == nil || retry.Decide(err).Class.Terminal() }`, `return err == nil }`, notifyDir, leftAlone},
	{"a breaker stays open", targetLimits, `Timeout:     t.Breaker.Rest,`, `Timeout:     100 * t.Breaker.Rest,`, notifyDir, leftAlone},
	{"an exchange takes as long as it likes", callee, `context.WithTimeout(ctx, t.total)`, `context.WithCancel(ctx)`, notifyDir,
		"TestAnExchangeTakesNoLongerThanTheTargetsTotal"},

	// Batches.
	{"a batch is never full", batch, `len(all.attempts) >= queue.Batch.Size`, `len(all.attempts) > queue.Batch.Size`, batchDir, gathers},
	{"a batch takes an attempt that comes too late", batch, `if g.open[all.queue] == all {`, `if g.open[all.queue] == all && false {`, batchDir, gathers},
	{"queues are gathered together", batch, `all := g.open[a.event.Queue]
	if all == nil {
		all = &gathering{queue: a.event.Queue,`, `all := g.open["one"]
	if all == nil {
		all = &gathering{queue: "one",`, batchDir, "TestAttemptsOfTwoQueuesAreNotGatheredTogether"},
	{"an item has the outcome of another", batch, `a.outcome = outcomes[i]`, `a.outcome = outcomes[0*i]`, batchDir, ownItem},
	{"an item without an outcome is done", batch, `err == nil && len(outcomes) != len(events)`, `err == nil && len(outcomes) > len(events)`, batchDir, ownItem},
	{"a call outlives its attempts", batch, `context.WithDeadline(ctx, deadline)`, `context.WithDeadline(ctx, deadline.Add(time.Minute))`, batchDir, "TestACallEndsByTheEarliestDeadlineOfItsAttempts"},
	{"who has left is called for", batch, `slices.Delete(all.attempts, at, at+1)`, `slices.Clone(all.attempts)`, batchDir, "TestAnAttemptThatEndsBeforeItsCallIsNotInIt"},
	{"a queue gathers what its handler does not", "internal/handler/handler.go", `batched != (q.Batch.Size > 0)`, `batched && q.Batch.Size == 0`, batchDir,
		"TestAQueueGathersExactlyIfItsHandlersDo"},

	// The catalog.
	{"a target's variable is a program's own", targetFile, `!slices.Contains(ownVariables, t.URLVariable)`, `t.URLVariable != ""`, targetDir, targetKeys},
	{"a disabled queue's target is needed", targetFile, `h.Post != (Post{}) && q.Enabled && (pool`, `h.Post != (Post{}) && (pool`, targetDir, "TestATargetOfADisabledQueueIsNeededByNobody"},
}
