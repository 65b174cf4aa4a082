package main

// Endpoints of third parties.
const (
	endpointDeliver = "internal/endpoints/deliver.go"
	endpointKeeper  = "internal/endpoints/keeper.go"
	endpointStored  = "internal/endpoints/endpoints.go"
	endpointPosts   = "internal/delivery/endpoints.go"
	endpointsDir    = "internal/endpoints"
)

// faultsOfEndpoints are those that would tell the wrong one, sign with the wrong secret, or give
// up who answers.
var faultsOfEndpoints = []fault{
	{"an endpoint is told of another tenant's events", endpointDeliver, `err == nil && e.Tenant != event.Tenant`, `false`,
		endpointsDir, "TestWhatIsNotForAnEndpointIsDoneWithoutARequest"},
	{"a filter lets everything through", endpointDeliver, `case !e.takes(asked.EventType):`, `case false:`,
		endpointsDir, "TestWhatIsNotForAnEndpointIsDoneWithoutARequest"},
	{"a success leaves the failure behind", endpointDeliver, `if err := d.heal(ctx, e); err != nil {`, `if err := error(nil); err != nil {`,
		endpointsDir, "TestAnEndpointIsWhatHappenedToIt"},
	{"what was not sent is a failure", endpointDeliver, `case !retry.Decide(failure).Counts: // nothing was sent`, `case false:`,
		endpointsDir, "TestWhatWasNotSentIsNoFailureOfTheEndpoint"},
	{"every failure is the first", endpointDeliver, `case e.FailingSince.IsZero():
		// Where`, `case true:
		// Where`, endpointsDir, "TestAFailureIsNotedWhenItBeginsAndForgottenWithASuccess"},
	{"an endpoint is given up without news", endpointDeliver, `for _, to := range d.News {`, `for _, to := range d.News[:0] {`,
		endpointsDir, "TestAnEndpointIsGivenUpWithNewsAndTheEventIsDone"},
	{"a change is written over another", endpointStored, `write = store.Update(Key(e.ID), e.version, store.Encode(&e))`,
		`write = store.Set(Key(e.ID), store.Encode(&e))`, endpointsDir, "TestAnEndpointThatWasChangedMeanwhileIsLookedAtAgain"},
	{"an old secret signs for ever", endpointStored, `if e.OldSecret != "" && now.Before(e.OldSecretUntil) {`, `if e.OldSecret != "" {`,
		endpointsDir, "TestTheSecretBeforeARotationSignsForADay"},
	{"a list holds the secrets", endpointStored, `store.Set(e.listed(list), store.Encode(&e.Endpoint))`, `store.Set(e.listed(list), store.Encode(&e))`,
		endpointsDir, "TestNoSecretIsInWhatPeopleSee"},
	{"an endpoint is registered wherever it is", endpointKeeper, `if err := k.Poster.Check(ctx, asked.URL); err != nil {`, `if err := error(nil); err != nil {`,
		endpointsDir, "TestARegistrationThatIsNotWellFormedIsRefused"},
	{"one public address is enough", endpointPosts, `	for _, ip := range found {`, `	for _, ip := range found[:1] {`,
		notifyDir, "TestOnlyAPublicAddressIsRegistered"},
	{"a rotation forgets the breaker", endpointPosts, `t.limits = before.target.limits`, `_ = before.target.limits`,
		notifyDir, "TestAnEndpointThatFailsIsLeftAloneAndTheOthersAreNot"},
	{"one endpoint that is down holds up the others", "internal/push/push.go", `oneTarget: leased && !many && len(places) == 1,`,
		`oneTarget: leased && (many || len(places) == 1),`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"only the newest secret signs", "internal/signature/signature.go", `append([]string{secret}, also...)`, `append([]string{secret}, also[:0]...)`,
		"internal/signature", "TestEverySecretOfStandardWebhooksSigns"},
}
