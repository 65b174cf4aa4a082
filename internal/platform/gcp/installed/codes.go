package installed

import "billhook/internal/platform/finding"

const (
	apply = "Apply Terraform again."
	grant = "Apply Terraform again, and ask who took the grant away. Google takes some minutes to heed a new grant."
	logs  = "Read the revision's log (gcloud run services logs read), mend the cause, and deploy again; Terraform's variable redeploy makes a new revision of the same configuration."
)

// What Examine finds, what each does, and what to do.
var (
	DoorMissing     = finding.New("door_missing", "There is no webhook service: senders are answered 404, and give up in the end.", apply+" Where it has another name or region: --name, --region.")
	WorkerMissing   = finding.New("worker_missing", "There is no worker of this pool: its queues' pushes are answered 404, and their messages wait until they are too old.", apply+" Where it has another name or region: --name, --region.")
	NotReady        = finding.New("service_not_ready", "No revision of the service runs: it answers nobody.", logs)
	NotUpdated      = finding.New("service_not_updated", "The newest configuration does not run. The revision before it still serves, as it was.", logs)
	DoorClosed      = finding.New("door_closed", "Cloud Run asks senders for a token of Google's: each webhook is answered 403.", apply)
	WorkerOpen      = finding.New("worker_open", "Anybody may call the worker, and it relies on Cloud Run to check tokens: whoever writes a token is believed to be Pub/Sub.", apply+" Ask who has opened it.")
	InvokerMissing  = finding.New("invoker_grant_missing", "Cloud Run answers 403 to every push and every task of this pool: nothing of its queues is handled.", grant)
	AudienceUnknown = finding.New("audience_refused", "Cloud Run answers 401 to every push and every task of this pool: it does not know the audience of their tokens.", apply)
	JobMissing      = finding.New("job_missing", "Nobody calls the task, so what it does is not done.", apply)
	JobPaused       = finding.New("job_paused", "Nobody calls the task while its job is paused, so what it does is not done.", "Resume it: gcloud scheduler jobs resume.")
	JobElsewhere    = finding.New("job_wrong_address", "The job calls another address than the task's: what the task does is not done.", apply)
	JobUnidentified = finding.New("job_wrong_token", "The worker refuses the job's token: what the task does is not done.", apply)
	VersionUnusable = finding.New("secret_version_unusable", "A service reads this version when an instance starts: those that run go on, and no new one starts.", "Enable the version (gcloud secrets versions enable), or add another and name its number in secret_versions.")
	SecretEmpty     = finding.New("secret_without_version", "It has no enabled version: a service that is to read it does not start.", "Add its value: gcloud secrets versions add.")
)
