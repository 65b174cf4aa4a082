package main

// faultsOfEvents are those of what is told of one event: its payload, what it has moved, its traces.
var faultsOfEvents = []fault{
	{"an event's payload is shown whether or not the audit tells of it", "internal/ops/payload.go", `if err := a.shown(r, asked.id, why, looked); err != nil {`,
		`if err := a.shown(r, asked.id, why, looked); err != nil && false {`, "internal/ops", "TestNoPayloadIsShownThatTheAuditDoesNotTellOf"},
	{"a dead letter's payload is shown whether or not the audit tells of it", "internal/ops/payload.go", `if err := a.shown(r, item.ID, why, looked); err != nil {`,
		`if err := a.shown(r, item.ID, why, looked); err != nil && false {`, "internal/ops", "TestNoPayloadIsShownThatTheAuditDoesNotTellOf"},
	{"a dead letter has its payload for everybody", "internal/ops/deadletters.go", `return Letter{Item: item, Attributes: item.Attributes, Size:`,
		`return Letter{Item: item, Attributes: item.Attributes, Data: item.Data, Size:`, "internal/ops", "TestAPayloadIsShownAsItWasWrittenToSomebodyWhoSaysWhy"},
	{"a payload's page shows it to who only looks", pagesDir + "/events.go", `"payload.html", p.eventNamed, p.eventPayload)`, `"payload.html", p.eventPayload, p.eventPayload)`,
		pagesDir, "TestAPayloadIsHiddenUntilSomebodySaysWhy"},
	{"an entry that comes meanwhile is taken for what was there", "internal/ledger/around.go", `if before.Version != 0 && before.Version == now.Version {`, `if before.Version != 0 {`,
		"internal/ledger", "TestWhatMovesMeanwhileIsNotCounted"},
	{"two entries of one moment are both the last", "internal/ledger/around.go", `return m.id() > other.id()`, `return false`, "internal/ledger", "TestEntriesOfOneMomentAreOrderedByTheirIDs"},
	{"a balance before a seal has what the seal credits", "internal/ledger/seal/balances.go", `after - added.Debit + added.Credit, after}`, `after - added.Debit, after}`,
		"internal/ops", "TestAnEventOfTheJournalTellsTheBalancesAroundItsSeal"},
	{"what another tenant's event moved is this one's effect", "internal/ops/effect.go", `if entry.Tenant != e.Tenant {`, `if false {`, "internal/ops", "TestWhatAnotherEventMovedIsNoEffectOfThisOne"},
	{"a trace is that of who published", "internal/push/admit.go", `traceOf(r.Header.Get("Traceparent"), d.message.Attributes[attrTraceparent])`,
		`traceOf(d.message.Attributes[attrTraceparent], r.Header.Get("Traceparent"))`, pushDir, "TestTheLogNamesTheTraceOfEachDelivery"},
}
