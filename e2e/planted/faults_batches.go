package main

const (
	bulk    = "internal/delivery/bulk.go"
	tellDir = "internal/notifications"

	ownLine = "TestEachItemOfABulkDecidesForItsOwnEvent"
)

// faultsOfBatches are those of posts in batches, of queues without records, and of notifications.
var faultsOfBatches = []fault{
	{"a line has the item of another", bulk, `status := answered[i].Status`, `status := answered[0*i].Status`, notifyDir, ownLine},
	{"an old version is an error", bulk, `case status == http.StatusConflict && l.version > 0:`, `case false:`, notifyDir, ownLine},
	{"a deletion creates", bulk, `l.action = remove`, `_ = remove`, notifyDir, "TestABulkHasAnActionForEachEventAndTheDocumentOfEachThatIsNotDeleted"},
	{"two tenants share a document", bulk, `event.Tenant+"~"+event.OrderingKey`, `event.OrderingKey`, notifyDir, "TestABulkHasAnActionForEachEventAndTheDocumentOfEachThatIsNotDeleted"},
	{"a version is not sent", bulk, `action.Version, action.VersionType = l.version, "external"`, `action.VersionType = ""`, notifyDir, "TestABulkHasAnActionForEachEventAndTheDocumentOfEachThatIsNotDeleted"},
	{"an item of another document is taken", bulk, `unclear = answered[i].ID != "" && answered[i].ID != lines[i].document`, `unclear = false`, notifyDir, "TestABadAnswerToABatchIsThatOfEveryEvent"},
	{"a bad line takes the others with it", bulk, `case contentRefused[answer.Status] && len(lines) > 1:`, `case false:`, notifyDir, "TestALineThatIsRefusedDoesNotTakeTheOthersWithIt"},
	{"a wrong path is every message's fault", bulk, `case verdict.Class.Terminal() && !contentRefused[answer.Status]:`, `case false:`, notifyDir, "TestABadAnswerToABatchIsThatOfEveryEvent"},
	{"an event that cannot be written ends the others", bulk, `			l.outcome.Err = err
			continue`, `			l.outcome.Err = err
			return nil, err`, notifyDir, "TestAnEventThatCannotBeWrittenIsNotInTheBatch"},
	{"a queue without records has them", once, `case r.rememberFor == 0 && r.mine:`, `case false:`, pushDir, "TestAMessageOfAQueueWithoutRecordsCostsTheStoreNothing"},
	{"a message of a queue without records is kept", plan, `case frees, !q.Remembers():`, `case frees:`, pushDir, "TestAMessageOfAQueueWithoutRecordsCostsTheStoreNothing"},
	{"a queue that tries again may have no records", "catalog/check.go", `require(q.RememberFor != 0 || q.forgets(),`, `require(true,`, "catalog", "TestEachMistakeNamesFileQueueAndKey"},
	{"a notification is young when its event is old", "internal/contract/set.go", `if !stamp.Since.IsZero() {`, `if false {`, tellDir, "TestAMessageIsAsOldAsItsEvent"},
	{"an event reaches one channel alone", "internal/notifications/notifications.go", `for _, channel := range channels {`, `for _, channel := range channels[:1] {`, tellDir, "TestAnEventBecomesAMessageForEachOfItsChannels"},
}
