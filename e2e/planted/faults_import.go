package main

// What moves messages from other queue systems, and where a fault in it is to be noticed.
const (
	importRun      = "internal/importer/importer.go"
	importRedis    = "internal/importer/redis.go"
	importRabbit   = "internal/importer/rabbitmq.go"
	importPostgres = "internal/importer/postgres.go"
	importDoor     = "internal/importer/door.go"
	importCompose  = "internal/importer/compose.go"
	importDir      = "internal/importer"
)

// faultsOfImports are those that would lose, double or hurry a message on its way here.
var faultsOfImports = []fault{
	{"what could not be taken yet is refused", importRun, `case transient(result.Status):`, `case false:`, importDir, "TestOnlyWhatTheDoorCouldNotTakeYetIsSentAgain"},
	{"what is on its way is cut off with the run", importRun, `context.WithTimeout(context.WithoutCancel(ctx), inFlight+r.Patience)`, `context.WithTimeout(ctx, 0)`, importDir, "TestADoorIsGivenTheTimeToAnswerARunThatIsStopped"},
	{"fewer results than messages prove something", importRun, `len(results) != len(b.items)`, `len(results) > len(b.items)`, importDir, "TestResultsOfAnotherNumberProveNothing"},
	{"an answer without a status is taken", importDoor, `if result.Status == 0 {`, `if false {`, importDir, "TestAnAnswerToTheWholeRequestIsRetriedRefusedOrFinal"},
	{"a message without an id gets another each time", importRedis, `Message{Handle: id, ID: id,`, `Message{Handle: id, ID: "",`, importDir, "TestEqualMessagesWithoutAnIDAreTwoAndStayTwoWhereARunIsCutOff"},
	{"what an earlier run has claimed is forgotten", importRedis, `if len(r.earlier) > 0 {`, `if false {`, importDir, "TestEqualMessagesWithoutAnIDAreTwoAndStayTwoWhereARunIsCutOff"},
	{"a lock is not looked at", importRedis, `if locks.Next(ctx) {`, `if false {`, importDir, "TestEachListOfAQueueIsDrained"},
	{"a message is marked and stays", importRabbit, `if err := d.Ack(false); err != nil {`, `if err := error(nil); err != nil {`, importDir, "TestEachQueueOfABrokerIsDrainedOverAMQP"},
	{"rows that others have locked are waited for", importPostgres, ` SKIP LOCKED`, ` NOWAIT`, importDir, "TestTheRowsOfAnEventQueueAreMovedAndSayWhereTo"},
	{"a row is taken from its worker", importPostgres, `({status} <> 'processing' OR NOT`, `(true OR NOT`, importDir, "TestTheRowsOfAnEventQueueAreMovedAndSayWhereTo"},
	{"attempts begin anew", importCompose, `tried := max(said, m.Attempts)`, `tried := min(said, m.Attempts)`, importDir, "TestEachMessageOfOldBecomesWhatTheDoorTakes"},
	{"a time to come is now", importCompose, `if m.Due.After(now) {`, `if false {`, importDir, "TestEachMessageOfOldBecomesWhatTheDoorTakes"},
}
