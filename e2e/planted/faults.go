package main

import "slices"

// Where faults are planted, and where they are to be noticed.
const (
	once       = "internal/dedupe/once.go"
	sweep      = "internal/dedupe/sweep.go"
	record     = "internal/dedupe/record.go"
	emit       = "internal/lane/emit.go"
	lanes      = "internal/lane/lane.go"
	relay      = "internal/lane/relay.go"
	attempt    = "internal/push/attempt.go"
	turn       = "internal/push/turn.go"
	perform    = "internal/push/perform.go"
	plan       = "internal/push/settle.go"
	settle     = "internal/push/settle.go"
	answer     = "internal/push/answer.go"
	tasks      = "internal/tasks/tasks.go"
	callee     = "internal/delivery/answer.go"
	notify     = "internal/delivery/delivery.go"
	dedupeDir  = "internal/dedupe"
	laneDir    = "internal/lane"
	pushDir    = "internal/push"
	tasksDir   = "internal/tasks"
	notifyDir  = "internal/delivery"
	letters    = "internal/deadletter/deadletter.go"
	operate    = "internal/deadletter/operate.go"
	author     = "internal/audit/author.go"
	lettersDir = "internal/deadletter"

	atOnce  = "TestOfManyWorkersOneClaims"
	events  = "TestALeasedEvent"
	late    = "TestAWorkerThatComesLateChangesNothing"
	outcome = "TestEveryOutcomeHasItsAnswer"
)

// commits is where a record is written with the effect.
const commits = `	versions, err := r.once.Store.Commit(ctx, append(append(make([]store.Write, 0, 1+len(also)), write), also...))`

// whatever writes a record of the status without its condition.
func whatever(status string) string {
	return "	if record.Status == " + status + " {\n		write = store.Set(r.key, write.Fields)\n	}\n" + commits
}

// faults are those that would lose, double or misjudge an event, each somewhere that
// one line decides it.
var faults = slices.Concat(faultsOfProcessing, faultsOfBatches, faultsOfBooks, faultsOfBrowser, faultsOfCatalog, faultsOfChoice, faultsOfDev, faultsOfDoors, faultsOfEndpoints, faultsOfEvents, faultsOfImports, faultsOfJournal, faultsOfKeeping, faultsOfLedger, faultsOfLists, faultsOfNames, faultsOfNewest, faultsOfOrders, faultsOfPauses, faultsOfPayments, faultsOfPeople, faultsOfPools, faultsOfProduce, faultsOfProducers, faultsOfRates, faultsOfReplays, faultsOfRunning, faultsOfSeals, faultsOfSearches, faultsOfSecrets, faultsOfServices, faultsOfShop, faultsOfSigning, faultsOfStatus, faultsOfStore, faultsOfStory, faultsOfTargets, faultsOfTheDoctor, faultsOfTheDoor, faultsOfTheImitation, faultsOfTheTerminal, faultsOfTries, faultsOfUsage, faultsOfWaiting, faultsOfWorker)

// faultsOfProcessing are those between a push and its answer.
var faultsOfProcessing = []fault{
	// The record.
	{"a record is written whatever is there", once, `write = store.Create(r.key, write.Fields)`,
		`write = store.Set(r.key, write.Fields)`, dedupeDir, "TestOfFiftyDeliveriesOfOneEventOneOwnsTheEffect"},
	{"an effect is committed whatever came between", once, commits, whatever("Completed"), dedupeDir, "TestTheEffectOfAWorkerThatComesLateIsNotCommitted"},
	{"a failure is written over a success", once, commits, whatever("Failed"), dedupeDir, "TestNeitherAFailureNorABurialIsWrittenOverASuccess"},
	{"a burial is written over a success", once, commits, whatever("DeadLettered"), dedupeDir, "TestNeitherAFailureNorABurialIsWrittenOverASuccess"},
	{"the own token is not recognized", once, `own := found.LeaseToken == r.token`, `own := false`, dedupeDir, "TestTheLostAnswerOfAnOwnCommitIsRecognized"},
	{"every token is the own", once, `own := found.LeaseToken == r.token`, `own := true`, dedupeDir, "TestADuplicateIsSeenAndChangesNothing"},
	{"expire_at is left to the database", once, `if !found.ExpireAt.IsZero() && !now.Before(found.ExpireAt) {`, `if false {`, dedupeDir, "TestAnExpiredRecordCountsAsAbsent"},
	{"payloads are not compared", once, `case found.PayloadHash != r.record.PayloadHash && !r.conflict:`, `case false:`, dedupeDir, "TestAnotherPayloadUnderAUsedIDDiffers"},
	{"a conflict forgets what it contradicts", once, `r.other = found.PayloadHash`, `r.other = ""`, pushDir, "TestAConflictRemembersBothHashes"},
	{"a store that is down is an absent record", once, `case errors.Is(err, store.ErrNotFound):`, `case err != nil:`, dedupeDir, "TestAStoreThatIsDownIsNeverTakenForAnAbsentRecord"},
	{"a store that cannot be read is the message's fault", once, `retry.Outage("store_unavailable", fmt.Errorf("read record: %w", err))`,
		`retry.Permanent("store_unavailable", fmt.Errorf("read record: %w", err))`, pushDir, outcome},
	{"a store that cannot be written is the message's fault", once, `retry.Outage("store_unavailable", fmt.Errorf("write record: %w", err))`,
		`retry.Permanent("store_unavailable", fmt.Errorf("write record: %w", err))`, pushDir, "TestACommitThatFailsIsTriedAgainAndThenDone"},
	{"a record that is found is a conflict of the effect", once, `(r.claimed || assumed != 0 || r.version == 0)`, `(r.claimed || assumed != 0 || r.version >= 0)`, dedupeDir, "TestAnEffectThatMeetsAConflictIsDecidedAgain"},
	{"the tenant is no part of the key", once, `return key(queue, tenant, eventID)`, `return key(queue, eventID)`, pushDir, "TestTenantsDoNotShareIDs"},
	{"the queue is no part of the key", once, `return key(queue, tenant, eventID)`, `return key(tenant, eventID)`, dedupeDir, "TestDifferentEventsHaveDifferentKeys"},

	// The lease.
	{"a claim is written whatever is there", once, commits, whatever("Processing"), dedupeDir, atOnce},
	{"a takeover is written whatever came between", once, commits, whatever("Processing"), dedupeDir, "TestATakeoverThatComesBetweenIsMet"},
	{"a late completion is written", once, commits, whatever("Completed"), pushDir, late},
	{"a late release is written", once, commits, whatever("Failed"), pushDir, late},
	{"a late burial is written", settle, `case w.run.Lost(seen) || (seen != dedupe.Fresh && seen != dedupe.Claimed):`,
		`case seen != dedupe.Fresh && seen != dedupe.Claimed:`, pushDir, late},
	{"a running lease holds off no other worker", once, `case found.Status == Processing && now.Before(found.LeaseUntil):`, `case false:`, dedupeDir, atOnce},
	{"a lease never ends", once, `case found.Status == Processing && now.Before(found.LeaseUntil):`, `case found.Status == Processing:`, pushDir, events},
	{"a lease is held once it has ended", once, `case found.Status == Processing && now.Before(found.LeaseUntil):`,
		`case found.Status == Processing && !now.Before(found.LeaseUntil):`, pushDir, events},
	{"attempts are not counted at the claim", once, `record.Attempts, record.LeaseUntil, record.Message = int64(r.Attempt()), now.Add(lease), keep`,
		`record.LeaseUntil, record.Message = now.Add(lease), keep`, pushDir, events},
	{"what is no fault of the message uses up an attempt", once, `record.Attempts--`, `_ = record`, pushDir, events},
	{"a claim whose answer was lost is not recognized", once, `case lookErr == nil && seen == Claimed:`, `case false:`, pushDir, events},
	{"an end whose answer was lost is not looked for", once, `unknown = err // a commit`, `return Fresh, err // a commit`, pushDir, events},
	{"a store that is down at the claim is the message's fault", once, `retry.Outage("store_unavailable", fmt.Errorf("claim: %w", err))`,
		`retry.Permanent("store_unavailable", fmt.Errorf("claim: %w", err))`, pushDir, events},
	{"a failure before does not count as one to ask about", once, `r.repeated = found.Status == Failed || found.Status == Processing`,
		`r.repeated = found.Status == Processing`, pushDir, events},
	{"a takeover asks nobody", perform, `if (w.repeated || event.Try > 0) && h.Leased.Reconcile != nil {`, `if event.Try > 0 && h.Leased.Reconcile != nil {`, pushDir, events},
	{"that it is done already is not heard", perform, `if err != nil || done {`, `if _ = done; err != nil {`, pushDir, events},
	{"that nobody can say is not heard", perform, `if err != nil || done {`, `if done {`, pushDir, events},
	{"an event that kills its worker is tried for ever", perform, `if event.Attempt > w.allowed {`, `if false {`, pushDir, events},
	{"a handler that still runs gives its lease back", perform, `case leased && errors.As(err, new(abandonedError)):`,
		`case leased && errors.As(err, new(abandonedError)) && false:`, pushDir, "TestALeasedHandlerThatIgnoresItsDeadlineKeepsItsLease"},
	{"a caller that leaves ends a leased handler", perform, `ctx = context.WithoutCancel(ctx)
`, `ctx = context.WithValue(ctx, maxKept, nil)
`, pushDir, "TestACallerThatLeavesDoesNotEndALeasedHandler"},
	{"a message is kept for ever", once, `record.LeaseUntil, record.NextRetryAt, record.Message = time.Time{}, time.Time{}, nil`,
		`record.LeaseUntil, record.NextRetryAt = time.Time{}, time.Time{}`, pushDir, "TestTheMessageIsKeptWhileASweepMayNeedIt"},

	// The answer.
	{"a push is acked before it is handled", "internal/push/push.go", `a, record := s.deliver(r.Context(), q, d)`,
		`w.WriteHeader(http.StatusOK); a, record := s.deliver(r.Context(), q, d)`, pushDir, outcome},
	{"a failure is acked", settle, `return answer{Outcome: retry.Retry, Status: int(means.Class),`, `return answer{Outcome: retry.Retry, Status: http.StatusOK,`, pushDir, outcome},
	{"a duplicate is sent again", answer, `case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:`, `case retry.Expired, retry.Dropped, retry.Superseded:`, pushDir, outcome},
	{"reject and ack are swapped", answer, `if q.OnTerminal == catalog.Reject &&`, `if q.OnTerminal != catalog.Reject &&`, pushDir, outcome},
	{"one attempt too many", attempt, `v.attempt >= w.allowed {`, `v.attempt > w.allowed {`, pushDir, outcome},
	{"a full queue uses up an attempt", perform, `v.means.Class.Terminal(), v.means.Counts, v`, `v.means.Class.Terminal(), true, v`, pushDir, outcome},
	{"a dead letter is marked before it is confirmed", settle, `failpoint.Hit(failpoint.BuryPublish)`, `_, _ = w.run.Conclude(ctx, end)`,
		pushDir, "TestADeadLetterIsConfirmedThenMarkedThenAnswered"},
	{"a dead letter without confirmation is marked", settle, `return verdict{course: nacked, failure: retry.Outage("dead_letter_unconfirmed", err), attempt: a.Attempt}`,
		`_, _ = w.run.Conclude(ctx, end)
			return verdict{course: nacked, failure: retry.Outage("dead_letter_unconfirmed", err), attempt: a.Attempt}`, pushDir, "TestADeadLetterThatIsNotConfirmedLeavesNoMark"},
	{"a webhook without a confirmed publish is accepted", "internal/webhook/webhook.go", `serve.Refuse(http.StatusServiceUnavailable, "publish_unconfirmed",`,
		`serve.Refuse(http.StatusAccepted, "publish_unconfirmed",`, "internal/webhook", "TestAnUnconfirmedPublishKeepsTheEventWithItsSender"},

	// The outbox.
	{"an emission is published before its commit", perform, `failpoint.Hit(failpoint.TxCommit)`, `for _, id := range emitted.Lanes {
					_, _ = s.config.Outbox.Lane(ctx, id)
				}; lanes = nil`,
		pushDir, "TestWhatIsEmittedIsPublishedAfterTheCommitAndBeforeTheAnswer"},
	{"an entry is written over another", lanes, `store.Create(key, store.Encode(`, `store.Set(key, store.Encode(`,
		laneDir, "TestAnEmissionIsCommittedWithItsLane"},
	{"a lane that is there is a conflict", lanes, `store.Set(store.Key{Collection: Outbox.Lanes(), ID: lane}`, `store.Create(store.Key{Collection: Outbox.Lanes(), ID: lane}`,
		laneDir, "TestWhateverRelaysDoEveryMessageComesInOrder"},
	{"a lane does not name its newest entry", lanes, `head{Newest: b.newest[lane], DueAt:`, `head{DueAt:`, laneDir, "TestAnEntryOfTheSameMomentKeepsTheLane"},
	{"an entry's id changes with the message", emit, `uuid.MustParse(event.CalleeKey()), []byte(strconv.Itoa(n)))`, `uuid.MustParse(event.CalleeKey()), []byte(event.MessageID+strconv.Itoa(n)))`,
		laneDir, "TestAnEmissionsIDFollowsFromItsEventAndItsPlaceAlone"},
	{"entries of one effect are in the order of their text", lanes, `"%s-%020d-%03d-%s"`, `"%s-%020d-%d-%s"`, laneDir, "TestALaneOfManyEntriesIsPublishedInOrder"},
	{"an entry is removed before it is published", relay, `if err := r.publish(ctx, l, e); err != nil {`,
		`_, _ = r.Store.Commit(ctx, []store.Write{store.Delete(doc.Key, 0)}); if err := r.publish(ctx, l, e); err != nil {`, laneDir, "TestNothingIsRemovedBeforeItIsPublished"},
	{"a failed entry is passed over", relay, `if err := r.publish(ctx, l, e); err != nil {`,
		`if err := r.publish(ctx, l, e); err != nil { continue }; if err := error(nil); err != nil {`, laneDir, "TestAFailedPublishStopsItsLaneAndKeepsTheRest"},
	{"a lane is removed whatever was added", relay, `return store.Delete(l.key, l.version)`, `return store.Delete(l.key, 0)`,
		laneDir, "TestAnEntryThatIsAddedDuringARelayIsNotLost"},
	{"a lane is removed whatever was added, between any two calls", relay, `return store.Delete(l.key, l.version)`, `return store.Delete(l.key, 0)`,
		laneDir, "TestWhateverRelaysDoEveryMessageComesInOrder"},
	{"a run looks at every lane", relay, `Due: &store.Due{Field: "due_at", Until: r.Now()}, Limit: limit`, `Limit: limit`,
		laneDir, "TestTheCostOfARunDependsOnWhatIsDueAlone"},
	{"a poisoned lane is due at once again", relay, `errors.Join(err, r.later(ctx, l, e, done))`, `err`,
		laneDir, "TestAPoisonedLaneHoldsUpNoOtherAndWaitsLongerEachTime"},

	// The sweep.
	{"an orphan is marked before it is published", sweep, `again, err := republish(ctx, record)`,
		`record.Status = Failed; _, _ = s.Commit(ctx, []store.Write{store.Set(doc.Key, record.Fields())}); again, err := republish(ctx, record)`,
		dedupeDir, "TestAnOrphanIsPublishedBeforeItIsMarked"},
	{"an orphan is marked though another worker has it", sweep, `store.Update(doc.Key, doc.Version, record.Fields())`, `store.Set(doc.Key, record.Fields())`,
		dedupeDir, "TestASweepWritesOverNobodysWork"},
	{"what was written anew is removed", sweep, `store.Delete(doc.Key, doc.Version)`, `store.Delete(doc.Key, 0)`, dedupeDir, "TestWhatIsWrittenAnewHasNotExpired"},
	{"an orphan is published where it is to be reported", tasks, `q.Enabled && q.OnOrphan == catalog.Republish && record.Message != nil`,
		`q.Enabled && record.Message != nil`, tasksDir, "TestOrphansAreDealtWithAsTheirQueueSays"},
	{"an orphan is one while its redelivery may come", tasks, `max(longest, wait+q.AckDeadline)`, `max(longest, wait)`, tasksDir, "TestOrphansAreDealtWithAsTheirQueueSays"},

	// What others receive, and what is kept.
	{"a webhook is not signed", callee, `range t.signer.Sign(r.ID, r.Body, t.now()) {`, `range map[string]string{} {`, notifyDir, "TestTheWebhookIsWhatTheCalleeWasPromised"},
	{"every attempt has an idempotency key of its own", notify, `ID: event.CalleeKey(), Body: body})`, `ID: event.CalleeKey() + string(rune('0'+event.Attempt)), Body: body})`,
		notifyDir, "TestTheWebhookIsWhatTheCalleeWasPromised"},
	{"a callee that failed has it", notify, `	if failure == nil {`, `	if failure == nil || answer.Status >= 500 && answer.Status < 600 {`, notifyDir, "TestAnAnswerSaysWhatBecomesOfTheMessage"},
	{"a callee that failed has refused", "internal/retry/answers.go", `return Transient("callee_failed_"+code, nil)`, `return Permanent("callee_failed_"+code, nil)`,
		notifyDir, "TestAnAnswerSaysWhatBecomesOfTheMessage"},
	{"an entry of the books is written over", "internal/ledger/points.go", `store.Create(entryKey, fields)`, `store.Set(entryKey, fields)`,
		"internal/billing", "TestAnOrderIsCreditedOnce"},
	{"a payment event is written over", "internal/subscriptions/subscriptions.go", `store.Create(Key(e.Tenant, e.Subscription, e.EventID), store.Encode(&e))`, `store.Set(Key(e.Tenant, e.Subscription, e.EventID), store.Encode(&e))`,
		"internal/subscriptions", "TestAnEventIsKeptOnce"},
	{"a dead letter is kept anew each time", "internal/deadletter/deadletter.go", `store.Create(key, item.fields())`,
		`store.Set(key, store.Encode(&item))`, pushDir, "TestADeadLetterIsKeptOncePerSourceMessage"},
	{"a leased handler need not declare its behaviour after a crash", "internal/handler/handler.go", `case h.Leased != nil && h.Leased.Reconcile == nil && !h.Leased.SafeToRepeat:`, `case false:`,
		"internal/handler", "TestAMistakeInRegisteringPanicsAtTheStart"},
	// Dead letters, and what waits.
	{"a replay finds its event dead", once, `found.Status == DeadLettered && r.record.Replays > found.Replays`, `false`,
		pushDir, "TestBehindADeadLetterItsKeyIsParkedUntilTheReplay"},
	{"a dead letter does not park its key", settle, `case p.way == never && w.parks && a.Outcome == retry.DeadLettered:`, `case p.way == never && w.parks && a.Outcome == retry.Expired:`, pushDir, "TestBehindADeadLetterItsKeyIsParkedUntilTheReplay"},
	{"a replay waits behind itself", attempt, `attributes[deadletter.AttrReplayOf] != ""`,
		`attributes[deadletter.AttrReplayOf] == "-"`, pushDir, "TestBehindADeadLetterItsKeyIsParkedUntilTheReplay"},
	{"an attempt is counted and its message not kept", settle, `seen, err := w.run.Conclude(ctx, end)`, `end.Kept.Writes = nil
		seen, err := w.run.Conclude(ctx, end)`,
		pushDir, "TestAWaitLongerThanTheBrokersIsKept"},
	{"a replay that fails again is another item", letters, `again != "" && replays > 0 {`, `again != "" && false {`,
		lettersDir, "TestAReplayThatFailsAgainIsTheSameItem"},
	{"a replay goes round for ever", operate, `(i.ReplayCount >= MaxReplays && !op.Force)`, `false`, lettersDir, "TestAReplayThatFailsAgainIsTheSameItem"},
	{"a replay is in the order of the ids", "internal/deadletter/item.go", `a.published().Compare(b.published()), cmp.Compare(a.number(), b.number()), strings.Compare(a.ID, b.ID)`, `strings.Compare(a.ID, b.ID)`,
		lettersDir, "TestAReplayPublishesOnTheQueueUnderTheKeyInTheOldOrder"},
	{"the author of an operation may approve it", author, `case by.String() == first:`, `case by.Name == first+"?":`, "internal/audit", "TestTwoPeopleAreTwoIdentities"},
	{"a previewed number is no promise", operate, `case total != expect:`, `case false:`, lettersDir, "TestAnOperationIsRefused"},
	{"a discard leaves its key parked", operate, `if w, ok := parked.Go(now); ok {`, `if w, ok := parked.Go(now); ok && false {`, pushDir, "TestWhoeverDiscardsOrCompletesADeadLetterReleasesWhatIsParked"},
	{"a handler emits where it may not", perform, `if !slices.Contains(w.policy.Emits, emission.To) {`, `if slices.Contains(w.policy.Emits, emission.To+"?") {`, pushDir, "TestAnEmissionThatTheCatalogDoesNotListIsRefused"},
	{"a dead letter is counted though it was dealt with", "internal/deadletter/item.go", `Equal: map[string]any{"queue": queue.ID, "state": string(Open)}, Count: true`,
		`Equal: map[string]any{"queue": queue.ID}, Count: true`, tasksDir, "TestADeadLetterIsCountedUntilItIsDealtWith"},
	{"a request during a drain is refused", "internal/serve/serve.go", `if s.Draining != nil {`, `if s.Draining(); false {`,
		"internal/serve", "TestRunFinishesRequestsInFlightAndRefusesNewOnes"},
	{"points that no number holds are published", "internal/webhook/points.go", `case item.Quantity > (math.MaxInt64-sum)/points:`, `case false && item.Quantity > (math.MaxInt64-sum)/points:`,
		"internal/webhook", "TestBadBodiesAreRefused"},
	// Commits of the embedded store, and a drill.
	{"a refused commit is forced to the disk", "internal/standin/commit.go", `return errNothing`, `return nil`, "internal/standin", "TestConcurrentCommitsShareOneForceToTheDisk"},
	{"a commit goes on whose caller has left", "internal/standin/commit.go", `if err := c.ctx.Err(); err != nil {`, `if err := c.ctx.Err(); err != nil && false {`,
		"internal/standin", "TestConcurrentCommitsShareOneForceToTheDisk"},
	{"a drill looks for no lost points", "e2e/burst/stack.go", `case have < points:`, `case have < 0:`, "e2e/burst", "TestWrongBalancesAreFound"},
}
