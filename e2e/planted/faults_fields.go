package main

const (
	projection = "internal/pii/projection.go"
	paynow     = "internal/webhook/paynow.go"
	relax      = "internal/contract/relax.go"
	provision  = "internal/gcp/pubsub/provision.go"
	publisher  = "internal/gcp/pubsub/publisher.go"
	webhook    = "internal/webhook/webhook.go"

	contractDir = "internal/contract"
	webhookDir  = "internal/webhook"
	pubsubDir   = "internal/gcp/pubsub"
)

// faultsOfFields are those at the door: members left out, refusals, and their reports.
var faultsOfFields = []fault{
	{"an optional field refuses the webhook", projection, `if w.mode == lenient && at.optional {`, `if false {`,
		piiDir, "TestABadOptionalFieldIsLeftOut"},
	{"a fraction is a uid", projection, `!spelled(value, maxText, digit, digit)`, `false`, piiDir, "TestABadOptionalFieldIsLeftOut"},
	{"an element of a list is left out", projection, `n.element.optional = false`, `n.element.optional = true`,
		piiDir, "TestABadRequiredFieldRefusesTheBody"},
	{"a field that must not be left out is", walker, `field.Tag.Get("pii") != "strict"`, `true`, contractDir, "TestTheTagsSayWhatIsOptional"},
	{"a producer is not told what the contract does not know", projection, `if child == nil && w.mode == exact {`, `if false {`,
		webhookDir, "TestAProducerIsToldOfEachMemberTheContractDoesNotKnow"},
	{"an unknown name is repeated, whatever it is", projection, `if !Code.valid(name) || detect(Code, name) != "" {`, `if false {`,
		webhookDir, "TestAProducerIsToldOfEachMemberTheContractDoesNotKnow"},
	{"what an effect needs is left out", paynow, `optional := strings.Fields(of.takes)`, `optional := strings.Fields(of.takes + " " + of.needs)`,
		webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a refunded part below nothing is a refund of all", paynow, `case s != nil && *s < 0:`, `case false:`, webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a total that was left out is made of the prices", paynow, `totalLost := f.lost("body.total_amount")`, `totalLost := false`,
		webhookDir, "TestAnOrderIsTakenWhateverElseIsOddAboutIt"},
	{"a contract's total that was left out is made of the prices", relax, `case r.lost("data.order.total"):`, `case false:`,
		contractDir, "TestARelaxedOrderIsGoodAndCostsWhatItDid"},
	{"a refund loses the currency of its amount", relax, `!isCurrency(*currency) && !stays`, `!isCurrency(*currency)`,
		contractDir, "TestARelaxedRefundGivesBackWhatItDid"},
	{"what is left out of a refused webhook is counted", webhook, `if o.status == http.StatusAccepted { // one`, `if true { // one`,
		webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a queue that is not enabled has a topic", provision, `if !q.Enabled {`, `if false {`, pubsubDir, "TestProvisionGivesEachQueueItsResources"},
	{"a missing topic is an outage", publisher, `contract.ErrTopicMissing,`, `contract.ErrBrokerDown,`, pubsubDir, "TestAnErrorOfPublishNamesItsCause"},
}
