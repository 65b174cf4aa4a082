package main

// faultsOfDev are those that would lose or double something on one machine, or make dev show what
// is not so.
var faultsOfDev = []fault{
	{"what a killed broker was done with waits again", "internal/standin/simulator.go", `s.note(logged{Subscription: sub.ID, Done: l.queue[0].ID})`,
		`s.note(logged{Subscription: sub.ID, Done: "0"})`, "internal/standin", "TestWhatWaitsOutlivesAKilledProcess"},
	{"the third party trusts every secret it was ever told", "internal/standin/partner.go", `r.partner = []*signature.Verifier{verifier}`,
		`r.partner = append(r.partner, verifier)`, "internal/standin", "TestTheThirdPartyTakesTheWordOfItsEndpointAlone"},
}
