package main

// faultsOfStatus are those of what people look at: the audit over all kinds, the catalog's hash, and what runs.
var faultsOfStatus = []fault{
	{"the audit's last page is announced as the whole", "internal/ops/audit.go", `	wanted.Limit++`, `	wanted.Limit += 0`, "internal/ops", "TestTheAuditIsReadPageByPageWithoutAGap"},
	{"operations are left out of the audit", "internal/ops/audit.go", `		found = append(found, auditOf(op))`, `		_ = auditOf(op)`, "internal/ops", "TestTheAuditIsOfAllKindsTheNewestFirstWithOperations"},
	{"the doctor is asked each time", "internal/ops/status.go", `	if e.last == nil || now.Sub(e.at) >= examinationIsGood {`, `	if e.last == nil || now.Sub(e.at) >= 0*examinationIsGood {`, "internal/ops", "TestTheDoctorIsAskedOnceAMinuteWithThePauses"},
	{"queues of two catalogs agree with one", "internal/ops/status.go", `	case len(deployed) == 1 && deployed[0] == hash:`, `	case deployed[0] == hash, deployed[len(deployed)-1] == hash:`, "internal/ops", "TestEachServiceIsComparedWithWhatIsDeployed"},
	{"a secret that the catalog names is shown", "internal/env/settings.go", `		if v.Secret {`, `		if v.Secret && false {`, "internal/env", "TestTheSettingsShowEveryVariableAndNoSecret"},
	{"the password of an address is shown", "internal/env/settings.go", `	if u.User != nil {`, `	if u.User != nil && false {`, "internal/env", "TestTheSettingsShowEveryVariableAndNoSecret"},
	{"the catalog's hash is of the names alone", "catalog/hash.go", `sha256.Sum256(text)`, `sha256.Sum256(text[:0])`, "catalog", "TestTheHashIsOfTheFilesWhereverTheyAreAndWhateverRuns"},
	{"a message that has waited for long tells of the door that runs", "internal/push/attempt.go", `		if s.config.Now().Sub(at) < rates.GoodFor {`, `		if s.config.Now().Sub(at) < 1000*rates.GoodFor {`, pushDir, "TestTheReleaseOfTheDoorIsNotedOfWhatItHasLetInLately"},
	{"provision takes the labels of others away", "internal/gcp/pubsub/provision.go", `			labels := maps.Clone(have.Labels)`, `			labels := maps.Clone(want.Labels)`, "internal/gcp/pubsub", "TestProvisionSaysOfWhichCatalogASubscriptionIsAndLeavesTheLabelsOfOthers"},
}
