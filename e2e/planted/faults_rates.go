package main

const (
	recorderFile = "internal/rates/recorder.go"
	ratesDir     = "internal/rates"
	ratesModel   = "TestWhatIsAddedIsCountedOnceOnTheEmbeddedStore"
)

// faultsOfRates are those of counting what becomes of deliveries.
var faultsOfRates = []fault{
	{"a batch whose answer was lost is added again", recorderFile, `.Flushes >= b.number {`, `.Flushes > b.number {`, ratesDir, ratesModel},
	{"counts are written over those of another instance", recorderFile, `return store.Update(key, version, store.Encode(&d))`, `return store.Set(key, store.Encode(&d))`, ratesDir, "TestInstancesThatAddAtTheSameTimeAreAllCounted"},
	{"what could not be added is forgotten", recorderFile, `	for len(r.taken) > 0 {
		if err := r.add(ctx, r.taken[0]); err != nil {
			return err
		}
`, `	for len(r.taken) > 0 {
		if err := r.add(ctx, r.taken[0]); err != nil {
			r.taken = r.taken[1:]
			return err
		}
`, ratesDir, ratesModel},
	{"a message that only waits is a failure", recorderFile, `if attempt > 0 {`, `if attempt >= 0 {`, ratesDir, "TestAMessageThatOnlyWaitsIsNoFailure"},
	{"the whole hour before counts as the last hour", "internal/rates/read.go", `counts = counts.part(time.Hour-now.Sub(this), time.Hour)`, `counts = counts.part(time.Hour, time.Hour)`, ratesDir, "TestTheLastHourTakesAPartOfTheHourBefore"},
	{"an instance that is gone keeps its breaker open", "internal/rates/read.go", `if now.Sub(s.SeenAt) > GoodFor {`, `if false {`, ratesDir, "TestTargetsShowTheirLastAnswersAndTheBreakersOfInstancesThatAreThere"},
	{"a count goes through every document of a status", queryFile, `if counts(q) && len(compared) > 1 {`, `if false {`, standinDir, "TestACountLooksAtWhatItCounts"},
	{"a rest that is repeated is a new failure", "internal/delivery/limits.go", `if from == gobreaker.StateClosed {`, `if from != to {`, "internal/delivery", "TestAnswersAndOpenBreakersAreTold"},
	{"a message that comes again comes in again", "internal/push/attempt.go", `	if !w.known {
		s.config.Rates.Arrived(q.ID)`, `	if true {
		s.config.Rates.Arrived(q.ID)`, "internal/push", "TestDeliveriesAreCountedByWhatBecameOfThem"},
}
