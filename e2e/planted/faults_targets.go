package main

const (
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

// faultsOfTargets are those of posts to services, of what services are spared, and of batches.
var faultsOfTargets = []fault{
	// What is posted where.
	{"a post goes to the place of the question", notify, `p.base.JoinPath(p.post.Path), body`, `p.base.JoinPath(p.post.Reconcile), body`, notifyDir,
		"TestTheWebhookIsWhatTheCalleeWasPromised"},
	{"a question is about another event", notify, `strings.Replace(p.post.Reconcile, "{id}", event.ID, 1)`, `strings.Replace(p.post.Reconcile, "{id}", event.Type, 1)`, notifyDir, "TestAskedWhatBecameOfIt"},
	{"a target without a question is asked", notify, `got.status == http.StatusConflict && p.post.Reconcile != "":`, `got.status == http.StatusConflict:`, notifyDir,
		"TestAConflictWithoutAQuestionIsARefusal"},
	{"Standard Webhooks have no id", callee, `t.signer.Sign(c.id, c.body`, `t.signer.Sign("", c.body`, notifyDir, "TestADocumentIsWhatTheCalleeWasPromised"},
	{"another body is posted under other names", "internal/contract/formats.go", `{"event_id", "eventId", true}`, `{"eventId", "eventId", true}`, notifyDir, "TestADocumentIsWhatTheCalleeWasPromised"},
	{"a worker starts without the way to its target", notify, `if at == "" || len(secrets) == 0 {`, `if at == "" && len(secrets) == 0 {`, notifyDir,
		"TestWhatIsMissingForATargetIsToldAtOnceAndWithoutItsSecret"},

	// What a target is spared.
	{"a private address is anybody's", targetLimits, `dialer.Control, proxy = public, nil`, `proxy = nil`, notifyDir, "TestOnlyAnInternalTargetIsDialledAtAPrivateAddress"},
	{"an address in another form is public", targetLimits, `at.Addr().Unmap()`, `at.Addr()`, notifyDir, "TestOnlyAnInternalTargetIsDialledAtAPrivateAddress"},
	{"who is turned away takes a turn", targetLimits, `turn.CancelAt(now)`, `_ = turn`, notifyDir, "TestATargetIsAskedNoMoreOftenThanItsRate"},
	{"an open breaker lets all through", targetLimits, `l.until = now.Add(l.Breaker.Rest)
	return 0`, `return 0`, notifyDir, "TestAnOpenBreakerLetsOneThrough"},
	{"a refusal is a failure of the target", targetLimits, `failure == nil || retry.Decide(failure).Class.Terminal():`, `failure == nil:`, notifyDir, leftAlone},
	{"a breaker stays open", targetLimits, `l.failed = 0`, `_ = 0`, notifyDir, leftAlone},
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
