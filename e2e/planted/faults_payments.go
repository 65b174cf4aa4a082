package main

const (
	initiation  = "internal/payments/payments.go"
	refund      = "internal/payments/refunds.go"
	atGateway   = "internal/worker/payments.go"
	paymentsDir = "internal/payments"

	refundedOnce = "TestAPaymentIsRefundedOnceWhateverTheMessagesIDs"
	statuses     = "TestWhatTheGatewaysStatusesMean"
)

// faultsOfPayments are those by which money moves twice, or moves and nobody is told.
var faultsOfPayments = []fault{
	{"who asks at the same time reserves the refund once more", refund, `store.Create(key, reserved)`, `store.Set(key, reserved)`, paymentsDir, "TestOfTwoWhoAskAtOnceOneIsLetThrough"},
	{"who asks after a refusal reserves over another", refund, `store.Update(key, there.version, reserved)`, `store.Set(key, reserved)`, paymentsDir, "TestOfTwoWhoAskAtOnceOneIsLetThrough"},
	{"another's refund under way is taken for one's own", refund, `case there.State == UnderWay && there.of(event):`, `case there.State == UnderWay:`, paymentsDir, "TestAMessageWaitsForAnothersRefundOfThePayment"},
	{"a refund of another amount passes for done", refund, `case there.Amount == asked.Amount && there.Currency == asked.Currency:`, `case true:`, paymentsDir, refundedOnce},
	{"an answer of another order is believed", initiation, `case !s.about(asked):`, `case false:`, paymentsDir, "TestAnAnswerOfAnotherOrderIsNotBelieved"},
	{"an answer of another order settles a refund", initiation, `agree(asked.PaymentID, s.PaymentID) &&`, `true &&`, paymentsDir, "TestAnAnswerOfAnotherOrderSettlesNoRefund"},
	{"the update names no payment", initiation, `about.PaymentID = s.PaymentID`, `about.PaymentID = event.ID`, paymentsDir, "TestAnAnswerOfAnotherOrderIsNotBelieved"},
	{"two tenants share the keys of callees", "internal/handler/handler.go", `%q %q %q", queue, tenant, eventID`, `%q %q", queue, eventID`, "internal/handler", "TestACalleeKeyIsOfOneQueueTenantAndEventAlone"},
	{"the update loses what it correlates with", initiation, `CorrelationID: event.CorrelationID,`, `CorrelationID: asked.Payload.SubscriptionID,`, paymentsDir, "TestAPaymentThatSucceedsIsToldUnderItsAction"},
	{"a refund that was declined is not rolled back", refund, `return r.settle(ctx, event, Refused, reason)`, `return nil, nil`, paymentsDir, "TestARefundIsSeenAtEachOfItsSteps"},
	{"a refund that cannot be read is none", refund, `return Refund{}, retry.Transient("refund_unreadable", err)`, `return Refund{}, nil`, paymentsDir, "TestARefundThatCannotBeReadIsNotMadeAgain"},
	{"a payment is made that nobody can be told of", initiation, `if body.Payload.SubscriptionID == "" {`, `if false {`, paymentsDir, "TestAPaymentThatCouldNotBeToldIsNotMade"},
	{"a payment that was declined is told as one that was made", initiation, `		update.Action = ActionDeclined`, `		_ = ActionDeclined`, paymentsDir, "TestADeclinedPaymentIsToldAsSuchAndNothingIsRefunded"},
	{"a trial that was declined is refunded", initiation, `if s.Status == statusSucceeded {`, `if true {`, paymentsDir, "TestADeclinedPaymentIsToldAsSuchAndNothingIsRefunded"},
	{"a question that the gateway refuses says that it has no order", atGateway, `case answer.Status == http.StatusNotFound:`, `case answer.Status >= http.StatusBadRequest:`, workerDir, statuses},
	{"an order that the gateway has already is refused", atGateway, `if answer.Status == http.StatusConflict {`, `if false {`, workerDir, statuses},
}
