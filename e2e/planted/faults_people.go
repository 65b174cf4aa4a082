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
	codec     = "internal/store/codec.go"
	problem   = "internal/serve/problem.go"
	storeDir  = "internal/store"
	serveDir  = "internal/serve"
)

// faultsOfPeople are those of customers, products, stored documents and answers.
var faultsOfPeople = []fault{
	// Those between a customer and a user.
	{"a refund is taken from the account that was credited once", chain, `c.Holder(), credit.From, c.Holder()`, `credit.To, credit.From, credit.To`,
		billingDir, conserved},
	{"an order moves as often as it is linked", chain, `left == 0 || holder == to`, `left == 0 || false`, "internal/ledger", "TestWhatIsNotTransferred"},
	{"what is refunded is moved nevertheless", chain, `left, holder := chain.Left(), chain.Holder()`, `left, holder := credit.Amount, chain.Holder()`,
		"internal/ledger", "TestATransferMovesWhatIsLeftAndIsTakenBackFromWhereItIs"},
	{"points come out of nowhere", chain, `change[e.Account] += w[1].Add["balance"]`, `change[e.Account] = w[1].Add["balance"]`, "internal/ledger", "TestWhatAnAccountHoldsIsFoundInPages"},
	{"a page that cuts an order loses it", chain, `break // the page may have cut it`, `n = len(documents) // the page may have cut it`, "internal/ledger", "TestWhatAnAccountHoldsIsFoundInPages"},
	{"points move to whom somebody has replaced", linking, `store.Update(Key(change.Tenant, change.CustomerID), m.version, store.Encode(&moved.Mapping))`, `store.Set(Key(change.Tenant, change.CustomerID), store.Encode(&moved.Mapping))`,
		customersDir, "TestALinkGoesNoFurtherWhereSomebodyChangesIt"},
	{"a link is written over another", linking, `store.Update(Key(change.Tenant, change.CustomerID), m.version, store.Encode(&after.Mapping))`, `store.Set(Key(change.Tenant, change.CustomerID), store.Encode(&after.Mapping))`,
		customersDir, "TestTwoWhoLinkAtOnceAreBothToldTheTruth"},
	{"a link that has changed meanwhile is gone on with", linking, `if m.UID != change.UID {
				return ErrChanged`, `if m.version == 0 {
				return ErrChanged`, customersDir, "TestALinkGoesNoFurtherWhereSomebodyChangesIt"},
	{"a preview is no promise", linking, `if change.Expect != nil && *change.Expect != m.UID {`, `if false {`, customersDir, "TestWhatIsRefused"},
	{"what was moved is in no audit", linking, `writes = append(writes, entry)`, `_ = entry`, customersDir, "TestALinkMovesWhatGuestsLeftOnce"},
	{"an unlink is in no audit", linking, `store.Delete(Key(change.Tenant, change.CustomerID), m.version), entry})`, `store.Delete(Key(change.Tenant, change.CustomerID), m.version), entry}[:1])`, customersDir, "TestAnotherUIDLeavesThePointsWhereTheyAre"},
	{"an order changes a mapping", teacher, `store.Create(order.key(), store.Encode(&m))`, `store.Set(order.key(), store.Encode(&m))`, billingDir, "TestAPaidOrderTeachesWhoItsCustomerIs"},
	{"a mapping that differs is not reported", teacher, `Lesson{Differs: true, Looked: true}`, `Lesson{Looked: true}`, workerDir, "TestAMappingThatDiffersIsSaid"},
	{"every order reads its customer", teacher, `case !found && try == 0:`, `case false:`, workerDir, costs},
	{"every order writes its customer", teacher, `if uid, ok := write.Fields["uid"].(string); ok && err == nil {`, `if uid, ok := write.Fields["uid"].(string); ok && false {`, workerDir, costs},
	{"what nobody knows to be written is believed", teacher, `ok && err == nil {`, `ok {`, customersDir, "TestAMappingWhoseWriteIsUncertainIsForgotten"},
	{"a uid that was looked up teaches", "internal/billing/points.go", `|| event.Attributes[contract.AttrUIDSource] != ""`, `|| false`, workerDir, "TestAMappingThatDiffersIsSaid"},
	{"a looked up uid is not called so", "internal/webhook/webhook.go", `a.UID, a.UIDSource = uid, contract.UIDOfCustomer`, `a.UID = uid`, "internal/webhook", "TestUIDComesFromTheDirectoryWhereTheBodyHasNone"},
	{"an order whose points have moved is credited again", "internal/billing/points.go", `(there.Account == account || chain.Holder() == account) && there.Amount == points`, `there.Account == account && there.Amount == points`,
		billingDir, "TestAnOrderThatWasAGuestsIsNotCreditedAgainToWhoHasItsPoints"},
	{"operations are listed with what people have changed", operate, `Newest: &span, `, ``, lettersDir, "TestOperationsAreListedWithoutTheEntriesBesideThem"},
	{"an entry of the audit is written over", "internal/audit/audit.go", `store.Create(key, store.Encode(&e))`, `store.Set(key, store.Encode(&e))`, "internal/audit", "TestAnEntryIsCreatedAndNeverWrittenOver"},
	// Those by which an order gets wrong points, or none, or nobody learns which product is missing.
	{"an old price is charged for ever", "internal/products/reader.go", `if !ok || !r.now().Before(remembered.until) {`, `if !ok {`,
		"internal/products", "TestAChangeElsewhereIsSeenInTime"},
	{"the catalog stands in for a store that is down", "internal/products/products.go", `case !errors.Is(err, store.ErrNotFound):`,
		`case errors.Is(err, store.ErrInvalid):`, "internal/products", "TestAStoreThatIsDownIsNoPriceList"},
	{"a shared read returns an older state", "internal/products/reader.go", `if joined && err != nil && ctx.Err() == nil {`,
		`if joined && err != nil && ctx.Err() != nil {`, "internal/products", "TestASharedReadDoesNotHideAProductThatWasSetAfterIt"},
	{"a retired product is worth what it was", "internal/products/reader.go", `if err == nil && p.State != Active {`, `if err == nil && p.State == "" {`,
		"internal/products", "TestAProductIsUnknownOnlyWhereTheStoreHasJustSaidSo"},
	{"a product is changed without a trace", "internal/products/products.go", `k.Store.Commit(ctx, []store.Write{write, entry})`,
		`k.Store.Commit(ctx, []store.Write{write, entry}[:1])`, "internal/products", "TestEveryChangeIsAuditedInItsOwnCommit"},
	{"a change of a product is written over another", "internal/products/products.go", `write = store.Update(write.Key, version, store.Encode(&after))`,
		`write = store.Set(write.Key, store.Encode(&after))`, "internal/products", "TestAChangeThatIsBeatenIsDecidedAnew"},
	{"a change of a product counts only elsewhere", "internal/worker/worker.go", `Changed: worth.Forget},`, `Changed: func(string, string) {}},`,
		"internal/worker", "TestWhatACreditReadsOfItsProducts"},
	{"every credit asks what its products are worth", "internal/products/reader.go", `until := r.now().Add(RememberedFor)`, `until := r.now()`,
		"internal/worker", "TestWhatACreditReadsOfItsProducts"},
	{"an unknown product is worth nothing", "internal/billing/worth.go", `unknown = append(unknown, id)`, `each[id] = 0`,
		"internal/billing", "TestAnUnknownProductIsNamed"},
	{"a store that is down makes every product unknown", "internal/billing/worth.go", `return 0, retry.Outage("store_unavailable", err)`,
		`unknown = append(unknown, id)`, "internal/billing", "TestWhatIsNotKnownNowIsTriedAgain"},
	{"an unknown product is a broken contract", "internal/retry/answers.go", `Verdict:  Verdict{Class: Malformed,`, `Verdict:  Verdict{Class: Rejected,`,
		pushDir, outcome},
	{"a dead letter does not say what it is about", settle, `if len(marked.Subjects) > 0 {`, `if false {`,
		pushDir, "TestADeadLetterIsKeptOncePerSourceMessage"},
	{"any text may stand in a dead letter's detail", "internal/retry/answers.go", `return !pii.ID.Valid(subject)`, `return !pii.ID.Valid("x") && subject == ""`,
		"internal/retry", "TestAVerdictNamesWhatItIsAbout"},
	{"a sale waits for a note", "internal/webhook/points.go", `err != nil || !known {`, `err != nil || !known { return "", broken("data", "unknown") }; if false {`,
		"internal/webhook", "TestAnOrderIsTakenWhateverItsProductsAre"},
	{"what waited is gone with dev", "internal/standin/simulator.go", `sub.waiting[d] = true`, `sub.waiting[d] = false; delete(sub.waiting, d)`,
		"internal/standin", "TestUndeliveredMessagesSurviveARestart"},
	{"what waited comes in another order", "internal/standin/keep.go", `cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID))`, `cmp.Compare(b.ID, a.ID)`,
		"internal/standin", "TestUndeliveredMessagesSurviveARestart"},
	{"a time is stored as it is spelled", codec, `return v.UTC().Truncate(time.Microsecond)`, `return *v`, storeDir, "TestAStructIsStoredByItsTags"},
	{"a field that decides may be missing", codec, `if (m.required && !there) ||`, `if false ||`, storeDir, "TestWhatDecidesMustBeReadable"},
	{"a zero time is a time", codec, `return v.IsZero()`, `return v == nil`, storeDir, "TestStoredDocumentsAreWhatTheyWere"},
	{"bytes are stored as text", codec, `ok && !utf8.Valid(*data) {`, `ok && *data == nil && !utf8.Valid(*data) {`, storeDir, "TestAStructIsStoredByItsTags"},
	{"a message that is half readable passes for whole", codec, `return ok && decode(fields, into) == nil`, `_ = decode(fields, into); return ok`, storeDir, "TestWhatDoesNotDecideIsLeftOutWhereItIsNotReadable"},
	{"an error is answered by the rung of another", problem, `if errors.Is(err, rung.Of) {`, `if err != nil {`, serveDir, "TestAnErrorIsAnsweredByItsRung"},
	{"an answer has no Retry-After", problem, `if p.RetryAfter > 0 {`, `if p.RetryAfter < 0 {`, serveDir, "TestAProblemIsADocumentWithItsHeaders"},
	{"what was corrected before it arrived is lost", "internal/deadletter/deadletter.go", `item := arrived`, `item := Item{Kept: arrived.Kept}`, storeDir, "TestStoredDocumentsAreWhatTheyWere"},
	{"one dead letter is looked for among all", "internal/deadletter/item.go", `if f.names() { // one`, `if f.Item == "-" { // one`, "internal/ops", "TestARetryReadsItsDeadLetterAlone"},
	{"a dead letter of another queue is retried", "internal/ops/eventqueue.go", `case len(items) > 1:`, `case len(items) > 2:`, "internal/ops", "TestADeadLetterIsRetriedByItsEventIDOrByItsOwn"},
	{"a cleanup forgets what is remembered", "internal/ops/eventqueue.go", `Before: begun.AddDate(0, 0, -days), Now: begun,`, `Before: begun.AddDate(0, 0, -days), Now: begun.AddDate(1, 0, 0),`,
		"internal/ops", "TestACleanupByDaysRemovesWhatHasExpired"},
}
