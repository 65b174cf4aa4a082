package main

const (
	producers = "internal/webhook/producers.go"
	complete  = "internal/contract/complete.go"
	known     = "internal/push/event.go"
	attempts  = "internal/push/attempt.go"
)

// faultsOfProducers are those of what producers inside the house send, and of what their events
// are known by.
var faultsOfProducers = []fault{
	{"a message overtakes one of its key that is sent again", producers, `held = o.again()`, `held = false`, webhookDir, "TestNothingOvertakesAMessageOfItsKeyThatIsToBeSentAgain"},
	{"one message at a time is published of a list", producers, `const workers = 16`, `const workers = 1`, webhookDir, "TestAListIsPublishedConcurrentlyAndInTheOrderOfEachKey"},
	{"a message of a topic need not be bound", producers, `return !q.Takes(map[string]string{contract.AttrRoutingKey: routingKey})`, `return routingKey == ""`, webhookDir, "TestWhatCannotBeHonouredIsRefused"},
	{"a message may wait until it is useless", producers, `case ttl > 0 && ahead > ttl:`, `case ttl > 0 && ahead < 0:`, webhookDir, "TestWhatCannotBeHonouredIsRefused"},
	{"a message of a list costs nothing of the rate", doorLimits, `!c.sender.AllowN(s.config.Now(), 1)`, `!c.sender.AllowN(s.config.Now(), 0)`, webhookDir, "TestEachMessageOfAListCountsForTheRate"},
	{"a sender has one rate for all queues", doorLimits, `sender := from.limiters[q.ID]`, `sender := from.limiters[s.config.Catalog.Queues[0].ID]`, webhookDir, "TestAFloodIntoOneQueueRefusesNothingOfAnother"},
	{"what one order is told twice is told once", complete, `if eventType != "" {`, `if false {`, contractDir, "TestTheIDThatIsMadeUpIsThatOfTheSameMessage"},
	{"a declared member goes to the head", complete, `if !declared && name`, `if (declared || !declared) && name`, contractDir, "TestWhatABodyMayLackIsMadeUp"},
	{"a time without an offset is refused", projection, `if rule == Time && w.mode == exact {`, `if false {`, piiDir, "TestExactTakesATimeWithoutAnOffsetForOneInUTC"},
	{"an event is known by its message's id alone", "catalog/catalog.go", `if q.DedupeBy == ByIdempotencyKey && idempotencyKey != "" {`, `if false {`, pushDir, "TestAnEventIsKnownByTheKeyThatItsMessageNames"},
	{"a service is told the message's id", known, `body = body.KnownAs(record.EventID)`, `_ = body`, pushDir, "TestAnEventIsKnownByTheKeyThatItsMessageNames"},
	{"a dead letter loses its event's key", "internal/deadletter/deadletter.go", `if letter.IdempotencyKey != "" && from`, `if letter.IdempotencyKey == "?" && from`, pushDir, "TestADeadLetterAndItsReplayAreOfTheKeysEvent"},
	{"attempts that were made elsewhere do not count", attempts, `w.before = max(0, min(w.event.Body.Attempted(), w.allowed-1))`, `w.before = 0`, pushDir, "TestAMessageGoesOnFromTheAttemptsThatItHadBefore"},
	{"a message whose attempts are used up is not tried", attempts, `w.before = max(0, min(w.event.Body.Attempted(), w.allowed-1))`, `w.before = w.event.Body.Attempted()`, pushDir, "TestAMessageGoesOnFromTheAttemptsThatItHadBefore"},
}
