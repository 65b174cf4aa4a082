package main

const (
	teacher      = "internal/customers/teacher.go"
	linking      = "internal/customers/operator.go"
	chain        = "internal/ledger/chain.go"
	customersDir = "internal/customers"
	billingDir   = "internal/billing"
	workerDir    = "internal/worker"

	conserved = "TestPointsAreConservedWhoeverIsLinked"
	costs     = "TestWhatACreditCostsByWhatIsKnownOfItsCustomer"
)

// faultsOfCustomers are those between a customer and a user.
var faultsOfCustomers = []fault{
	{"a refund is taken from the account that was credited once", chain, `c.Holder(), credit.From, c.Holder()`, `credit.To, credit.From, credit.To`,
		billingDir, conserved},
	{"an order moves as often as it is linked", chain, `left == 0 || holder == to`, `left == 0 || false`, "internal/ledger", "TestWhatIsNotTransferred"},
	{"what is refunded is moved nevertheless", chain, `left, holder := chain.Left(), chain.Holder()`, `left, holder := credit.Amount, chain.Holder()`,
		"internal/ledger", "TestATransferMovesWhatIsLeftAndIsTakenBackFromWhereItIs"},
	{"points come out of nowhere", chain, `change[e.Account] += w[1].Add["balance"]`, `change[e.Account] = w[1].Add["balance"]`, "internal/ledger", "TestWhatAnAccountHoldsIsFoundInPages"},
	{"a page that cuts an order loses it", chain, `break // the page may have cut it`, `n = len(documents) // the page may have cut it`, "internal/ledger", "TestWhatAnAccountHoldsIsFoundInPages"},
	{"points move to whom somebody has replaced", linking, `store.Update(Key(change.CustomerID), m.version, store.Encode(&moved.Mapping))`, `store.Set(Key(change.CustomerID), store.Encode(&moved.Mapping))`,
		customersDir, "TestALinkGoesNoFurtherWhereSomebodyChangesIt"},
	{"a link is written over another", linking, `store.Update(Key(change.CustomerID), m.version, store.Encode(&after.Mapping))`, `store.Set(Key(change.CustomerID), store.Encode(&after.Mapping))`,
		customersDir, "TestTwoWhoLinkAtOnceAreBothToldTheTruth"},
	{"a link that has changed meanwhile is gone on with", linking, `if m.UID != change.UID {
				return ErrChanged`, `if m.version == 0 {
				return ErrChanged`, customersDir, "TestALinkGoesNoFurtherWhereSomebodyChangesIt"},
	{"a preview is no promise", linking, `if change.Expect != nil && *change.Expect != m.UID {`, `if false {`, customersDir, "TestWhatIsRefused"},
	{"what was moved is in no audit", linking, `writes = append(writes, entry)`, `_ = entry`, customersDir, "TestALinkMovesWhatGuestsLeftOnce"},
	{"an unlink is in no audit", linking, `store.Delete(Key(change.CustomerID), m.version), entry})`, `store.Delete(Key(change.CustomerID), m.version), entry}[:1])`, customersDir, "TestAnotherUIDLeavesThePointsWhereTheyAre"},
	{"an order changes a mapping", teacher, `store.Create(Key(order.CustomerID), store.Encode(&m))`, `store.Set(Key(order.CustomerID), store.Encode(&m))`, billingDir, "TestAPaidOrderTeachesWhoItsCustomerIs"},
	{"a mapping that differs is not reported", teacher, `Lesson{Differs: true, Looked: true}`, `Lesson{Looked: true}`, workerDir, "TestAMappingThatDiffersIsSaid"},
	{"every order reads its customer", teacher, `case !found && try == 0:`, `case false:`, workerDir, costs},
	{"every order writes its customer", teacher, `if uid, ok := write.Fields["uid"].(string); ok && err == nil {`, `if uid, ok := write.Fields["uid"].(string); ok && false {`, workerDir, costs},
	{"what nobody knows to be written is believed", teacher, `ok && err == nil {`, `ok {`, customersDir, "TestAMappingWhoseWriteIsUncertainIsForgotten"},
	{"a uid that was looked up teaches", "internal/billing/points.go", `|| event.Attributes[contract.AttrUIDSource] != ""`, `|| false`, workerDir, "TestAMappingThatDiffersIsSaid"},
	{"a looked up uid is not called so", "internal/webhook/webhook.go", `a.UID, a.UIDSource = uid, contract.UIDOfCustomer`, `a.UID = uid`, "internal/webhook", "TestUIDComesFromTheDirectoryWhereTheBodyHasNone"},
	{"an order whose points have moved is credited again", "internal/billing/points.go", `(there.Account == account || chain.Holder() == account) && there.Amount == points`, `there.Account == account && there.Amount == points`,
		billingDir, "TestAnOrderThatWasAGuestsIsNotCreditedAgainToWhoHasItsPoints"},
	{"operations are listed with what people have changed", operate, `if audit.IsEntry(doc.Key.ID) {`, `if false {`, lettersDir, "TestOperationsAreListedWithoutTheEntriesBesideThem"},
	{"an entry of the audit is written over", "internal/audit/audit.go", `store.Create(key, store.Encode(&e))`, `store.Set(key, store.Encode(&e))`, "internal/audit", "TestAnEntryIsCreatedAndNeverWrittenOver"},
}
