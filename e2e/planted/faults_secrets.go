package main

const (
	doorMain     = "cmd/webhook/main.go"
	doorOutlasts = "TestCloudRunEndsNoRequestThatTheDoorStillAnswers"
)

// faultsOfSecrets are those of who may sign what, and of how long a service has for an answer.
var faultsOfSecrets = []fault{
	{"who receives may sign as a sender", targetFile, `!strings.HasPrefix(t.SecretVariable, "WEBHOOK_")`, `t.SecretVariable != ""`, catalogs, "TestEachMistakeOfATargetNamesFileTargetAndKey"},
	{"the producers' secret signs what is delivered", workerMain, `env.Secret(getenv(t.SecretVariable)).List()`, `env.Secret(getenv("WEBHOOK_SIGNING_SECRET")).List()`, "cmd/worker", "TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets"},
	{"the door reads for longer than Cloud Run waits", doorMain, `readTimeout = 20 * time.Second`, `readTimeout = 25 * time.Second`, "cmd/webhook", doorOutlasts},
	{"the door publishes for longer than Cloud Run waits", doorMain, `publishTimeout = 5 * time.Second`, `publishTimeout = 9 * time.Second`, "cmd/webhook", doorOutlasts},
}
