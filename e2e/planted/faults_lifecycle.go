package main

const (
	cloudRun   = "emulator/cloud/run.go"
	cloudIAM   = "emulator/cloud/iam.go"
	cloudQueue = "emulator/cloud/pubsub.go"
	cloudDir   = "emulator/cloud"
)

// faultsOfTheImitation are those of the imitated control planes: each would let a whole apply pass
// that Google refuses.
var faultsOfTheImitation = []fault{
	{"a revision that fails takes the traffic", cloudRun, `	if problem == "" {
		service["latestReadyRevision"]`, `	if true {
		service["latestReadyRevision"]`, cloudDir, "TestTrafficStaysOnTheRevisionThatGotReady"},
	{"a grant works at once", cloudIAM, `c.held.Unsettled[grant]--
				return false`, `c.held.Unsettled[grant]--`, cloudDir, "TestAGrantWorksAfterItWasMissedAsOftenAsSaid"},
	{"a version that is off is read", cloudRun, `state != "ENABLED"`, `state == ""`, cloudDir, "TestAServiceStartsOnlyWithItsSecretsAndItsGrants"},
	{"a lost message is not told of", cloudQueue, `if readers == 0 {`, `if false {`, cloudDir, "TestMessagesWaitWhereNobodyIsPushedAndGoWithTheirSubscription"},
	{"traffic goes to a revision that is not there", cloudRun, `if _, found := c.held.Resources[r.key()+"/revisions/"+revision]; !found {`, `if false {`, cloudDir, "TestTrafficStaysOnTheRevisionThatGotReady"},
}
