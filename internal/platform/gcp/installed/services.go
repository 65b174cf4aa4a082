package installed

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/api/cloudscheduler/v1"
	"google.golang.org/api/iap/v1"
	"google.golang.org/api/run/v2"
	"google.golang.org/api/secretmanager/v1"

	"billhook/catalog"
	"billhook/internal/platform/finding"
)

const (
	invoker  = "roles/run.invoker"
	accessor = "roles/iap.httpsResourceAccessor"
	allUsers = "allUsers"
	ready    = "CONDITION_SUCCEEDED"
	underWay = "CONDITION_RECONCILING"
	enabled  = "ENABLED"
	people   = "ops" // the service for people, which does not publish

	getService   = "run.services.get"
	getPolicy    = "run.services.getIamPolicy"
	getPeople    = "iap.webServices.getIamPolicy"
	getJob       = "cloudscheduler.jobs.get"
	getVersion   = "secretmanager.versions.get"
	listSecrets  = "secretmanager.secrets.list"
	listVersions = "secretmanager.versions.list"
)

// proxyAgent is Identity-Aware Proxy's own account, which calls the services.
var proxyAgent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-iap\.iam\.gserviceaccount\.com$`)

// everybody has the members that stand for people without an account in this project.
var everybody = []string{allUsers, "allAuthenticatedUsers"}

var invoking = []string{invoker, "roles/run.servicesInvoker", "roles/run.admin"}

func (l *look) webhook(ctx context.Context) {
	id := l.config.Name + "-webhook"
	service := l.service(ctx, id, catalog.Webhook)
	if service == nil || service.InvokerIamDisabled {
		return
	}
	if members, ok := l.callers(ctx, id); ok && !slices.Contains(members, allUsers) {
		l.find("service", id, WebhookClosed, "a token is required", "anybody may call it")
	}
}

// ops examines whether the proxy is in front of the service for people, may call it, and admits somebody.
func (l *look) ops(ctx context.Context) {
	id := l.config.Name + "-" + people
	service := l.service(ctx, id, people)
	if service == nil {
		return
	}
	l.serves(service, "people")
	if !service.IapEnabled || service.InvokerIamDisabled {
		l.find("service", id, OpsOpen, "not behind the proxy", "Identity-Aware Proxy, and Cloud Run's own check")
		return
	}
	members, ok := l.callers(ctx, id)
	is := proxyAgent.MatchString
	if ok && !slices.ContainsFunc(members, is) && !l.Inherits(invoking, is) {
		l.find("service", id, ProxyRefused, "", invoker+" for Identity-Aware Proxy's service agent")
	}
	resource := "projects/" + l.config.ProjectID + "/iap_web/cloud_run-" + l.config.Region + "/services/" + id
	policy, err := l.proxy.V1.GetIamPolicy(resource, &iap.GetIamPolicyRequest{}).Context(ctx).Do()
	if err != nil {
		_ = l.missing(err, "who may open service "+id, getPeople) // an existing service has a policy
		return
	}
	somebody := func(b *iap.Binding) bool { return b.Role == accessor && len(b.Members) > 0 }
	anybody := func(string) bool { return true }
	if !slices.ContainsFunc(policy.Bindings, somebody) && !l.Inherits([]string{accessor}, anybody) {
		l.find("service", id, OpsNobody, "", accessor+" for operators")
	}
}

// serves compares a service's variable SERVES with the value that Terraform configures.
func (l *look) serves(service *run.GoogleCloudRunV2Service, want string) {
	have := "pushes and people"
	for _, variable := range environment(service) {
		if variable.Name == "SERVES" && variable.Value != "" {
			have = variable.Value
		}
	}
	if have != want {
		l.find("service", l.id, ServesOthers, have, want)
	}
}

func (l *look) worker(ctx context.Context, pool string) {
	id, account := l.config.Name+"-worker-"+pool, l.config.Of(pool).ServiceAccount
	service := l.service(ctx, id, catalog.WorkerOf(pool))
	if service == nil {
		return
	}
	l.serves(service, "pushes")
	if want := l.config.PushAudience; want != "" && !slices.Contains(service.CustomAudiences, want) {
		have := cmp.Or(strings.Join(service.CustomAudiences, ", "), "none")
		l.find("service", id, AudienceUnknown, have, want)
	}
	if service.InvokerIamDisabled {
		l.find("service", id, WorkerOpen, "no token is required", invoker+" for its callers")
		return
	}
	members, ok := l.callers(ctx, id)
	if !ok {
		return
	}
	for _, member := range members {
		switch {
		case slices.Contains(everybody, member):
			l.find("service", id, WorkerOpen, invoker+" for "+member, invoker+" for its callers")
		case account != "" && member != "serviceAccount:"+account:
			l.find("service", id, PushForgeable, invoker+" for "+member, invoker+" for "+account+" alone")
		}
	}
	is := func(member string) bool { return member == "serviceAccount:"+account }
	enough := append(slices.Clone(invoking), "roles/editor", "roles/owner")
	if account != "" && !slices.ContainsFunc(members, is) && !l.Inherits(enough, is) {
		l.find("service", id, InvokerMissing, "", invoker+" for "+account)
	}
}

// service reads a service and examines whether it is ready. It is nil if missing, or if it could not be read.
func (l *look) service(ctx context.Context, id, name string) *run.GoogleCloudRunV2Service {
	l.id, l.name = id, name
	service, err := l.services.Projects.Locations.Services.Get(l.parent() + "/services/" + id).Context(ctx).Do()
	if err != nil {
		if l.missing(err, "service "+id, getService) {
			code := map[string]finding.Code{catalog.Webhook: WebhookMissing, people: OpsMissing}[name]
			l.find("service", id, cmp.Or(code, WorkerMissing), "", "in "+l.config.Region)
		}
		return nil
	}
	switch state := cmp.Or(service.TerminalCondition, &run.GoogleCloudRunV2Condition{}); {
	case state.State == underWay || service.Reconciling:
		what := "whether service " + id + " is ready"
		l.unread = append(l.unread, finding.Unread{What: what, Why: "it is being changed: try again"})
	case state.State != ready && service.LatestReadyRevision == "":
		l.find("service", id, NotReady, words(state), ready)
	case state.State != ready:
		l.find("service", id, NotUpdated, words(state), ready)
	}
	if service.Template != nil {
		l.account = service.Template.ServiceAccount
	}
	for _, variable := range environment(service) {
		if source := variable.ValueSource; source != nil && source.SecretKeyRef != nil {
			l.reads = append(l.reads, version{source.SecretKeyRef.Secret, source.SecretKeyRef.Version})
		}
	}
	return service
}

func environment(service *run.GoogleCloudRunV2Service) (all []*run.GoogleCloudRunV2EnvVar) {
	if service.Template != nil {
		for _, container := range service.Template.Containers {
			all = append(all, container.Env...)
		}
	}
	return all
}

// callers returns the members who may call a service; ok is false if they could not be read.
func (l *look) callers(ctx context.Context, id string) (members []string, ok bool) {
	resource, what := l.parent()+"/services/"+id, "who may call service "+id
	policy, err := l.services.Projects.Locations.Services.GetIamPolicy(resource).Context(ctx).Do()
	if err != nil {
		if l.missing(err, what, getPolicy) { // it existed a moment ago
			l.unread = append(l.unread, finding.Unread{What: what, Why: "it does not exist any more: try again"})
		}
		return nil, false
	}
	for _, binding := range policy.Bindings {
		if binding.Condition == nil && slices.Contains(invoking, binding.Role) {
			members = append(members, binding.Members...)
		}
	}
	return members, true
}

func words(state *run.GoogleCloudRunV2Condition) string {
	reason := cmp.Or(state.RevisionReason, state.ExecutionReason, state.Reason)
	parts := []string{cmp.Or(state.State, "unknown"), reason, state.Message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// job examines the job that calls the tasks.
func (l *look) job(ctx context.Context) {
	id, pool := l.config.Name+"-tasks", l.config.Of(l.config.Catalog.TasksPool)
	want := "POST " + pool.URL + l.config.TasksPath
	job, err := l.jobs.Projects.Locations.Jobs.Get(l.parent() + "/jobs/" + id).Context(ctx).Do()
	if err != nil {
		if l.missing(err, "job "+id, getJob) {
			l.find("job", id, JobMissing, "", want)
		}
		return
	}
	if job.State != enabled {
		l.find("job", id, JobPaused, cmp.Or(job.State, "unknown"), enabled)
	}
	target := cmp.Or(job.HttpTarget, &cloudscheduler.HttpTarget{})
	if have := target.HttpMethod + " " + target.Uri; have != want {
		l.find("job", id, JobElsewhere, have, want)
	}
	tokenOf := func(account, audience string) string {
		return cmp.Or(account, "no account") + " for " + cmp.Or(audience, "no audience")
	}
	token := cmp.Or(target.OidcToken, &cloudscheduler.OidcToken{})
	have, wanted := tokenOf(token.ServiceAccountEmail, token.Audience),
		tokenOf(pool.ServiceAccount, l.config.PushAudience)
	if have != wanted {
		l.find("job", id, JobUnidentified, have, wanted)
	}
}

// ofSecrets examines each secret version that a service reads, and whether the other secrets have a version.
func (i *Installation) ofSecrets(looks []*look) (questions []question) {
	readers := map[version][]string{}
	for _, at := range looks {
		for _, one := range at.reads {
			readers[one] = append(readers[one], at.id)
		}
	}
	reads := slices.SortedFunc(maps.Keys(readers), func(a, b version) int {
		return cmp.Or(cmp.Compare(a.secret, b.secret), cmp.Compare(a.number, b.number))
	})
	for _, one := range reads {
		by := strings.Join(slices.Compact(readers[one]), ", ")
		questions = append(questions, func(at *look, ctx context.Context) { at.version(ctx, one, by) })
	}
	return append(questions, func(at *look, ctx context.Context) { at.unreadSecrets(ctx, reads) })
}

func (l *look) version(ctx context.Context, of version, by string) {
	id := idOf(of.secret)
	name := "projects/" + l.config.ProjectID + "/secrets/" + id
	if strings.HasPrefix(of.secret, "projects/") { // a secret of another project
		name = of.secret
	}
	what := "version " + of.number
	have, err := l.secrets.Projects.Secrets.Versions.Get(name + "/versions/" + of.number).Context(ctx).Do()
	want := what + " is " + enabled + ", for " + by
	switch {
	case err != nil && l.missing(err, what+" of secret "+id, getVersion):
		l.find("secret", id, VersionUnusable, "there is no "+what, want)
	case err == nil && have.State != enabled:
		l.find("secret", id, VersionUnusable, what+" is "+have.State, want)
	}
}

func (l *look) unreadSecrets(ctx context.Context, reads []version) {
	var ids []string
	project := "projects/" + l.config.ProjectID
	all := l.secrets.Projects.Secrets.List(project).Filter("labels.app=" + l.config.Name)
	err := all.Pages(ctx, func(page *secretmanager.ListSecretsResponse) error {
		for _, secret := range page.Secrets {
			id := idOf(secret.Name)
			read := slices.ContainsFunc(reads, func(of version) bool { return idOf(of.secret) == id })
			if secret.Labels["app"] == l.config.Name && !read {
				ids = append(ids, id)
			}
		}
		return nil
	})
	if err != nil {
		_ = l.missing(err, "secrets that no service reads yet", listSecrets) // a list is never missing
		return
	}
	isEnabled := func(v *secretmanager.SecretVersion) bool { return v.State == enabled }
	for _, id := range ids {
		versions := l.secrets.Projects.Secrets.Versions.List(project + "/secrets/" + id)
		page, err := versions.Filter("state:" + enabled).Context(ctx).Do()
		if err != nil {
			_ = l.missing(err, "the versions of secret "+id, listVersions) // a deleted secret needs no version
			continue
		}
		if !slices.ContainsFunc(page.Versions, isEnabled) {
			l.find("secret", id, SecretEmpty, "", "a version that is "+enabled)
		}
	}
}

func idOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

const (
	apply     = "Apply Terraform again."
	elsewhere = apply + " If it has another name or region: --name, --region."
	grant     = "Apply Terraform again, and ask who removed the grant. A new grant takes some minutes."
	logs      = "Read the revision's log (gcloud run services logs read), fix the cause, and deploy again; " +
		"another redeploy of it in Terraform's services makes a new revision of the same configuration."
)

// The findings of Examine, with effect and remedy.
var (
	WebhookMissing = finding.New("webhook_missing",
		"There is no webhook service: senders are answered 404, and give up in the end.", elsewhere)
	WorkerMissing = finding.New("worker_missing",
		"There is no worker of this pool: pushes are answered 404, and messages wait until they expire.", elsewhere)
	NotReady   = finding.New("service_not_ready", "No revision of the service runs: it answers nobody.", logs)
	NotUpdated = finding.New("service_not_updated",
		"The newest configuration does not run. The revision before it still serves.", logs)
	WebhookClosed = finding.New("webhook_closed",
		"Cloud Run requires a token of Google's from senders: each webhook is answered 403.", apply)
	WorkerOpen = finding.New("worker_open",
		"Anybody may call the worker, and it relies on Cloud Run to check tokens: anybody can forge a push.",
		apply+" Ask who has opened it.")
	OpsMissing = finding.New("ops_missing", "Pages and API are missing: no service for people.", elsewhere)
	OpsOpen    = finding.New("ops_unproxied",
		"Identity-Aware Proxy is not in front of the service: it identifies nobody, and refuses everybody.", apply)
	OpsNobody = finding.New("ops_without_people",
		"Identity-Aware Proxy lets nobody in: no page opens, and the API answers nobody.",
		"Name people in Terraform's variable ops, and apply.")
	ProxyRefused = finding.New("proxy_grant_missing",
		"Cloud Run refuses Identity-Aware Proxy: whoever opens a page is answered 403.", grant)
	ServesOthers = finding.New("service_serves_others",
		"Pushes or people find no answer here; or whoever may open a page can also forge a push.", apply)
	PushForgeable = finding.New("worker_invoker_unknown",
		"The worker trusts everybody who may call it: this member can forge a push.",
		"Ask who granted it, and remove the grant.")
	InvokerMissing = finding.New("invoker_grant_missing",
		"Cloud Run answers 403 to every push and task of this pool: no message of its queues is handled.", grant)
	AudienceUnknown = finding.New("audience_refused",
		"Cloud Run answers 401 to every push and task of this pool: it does not accept their audience.", apply)
	JobMissing   = finding.New("job_missing", "The tasks never run.", apply)
	JobPaused    = finding.New("job_paused", "The tasks do not run.", "Resume it: gcloud scheduler jobs resume.")
	JobElsewhere = finding.New("job_wrong_address",
		"The tasks do not run: their job calls another address.", apply)
	JobUnidentified = finding.New("job_wrong_token",
		"The tasks do not run: the worker refuses its token.", apply)
	VersionUnusable = finding.New("secret_version_unusable",
		"A service reads this version at its start: running instances go on, and no new one starts.",
		"Enable the version (gcloud secrets versions enable), or add another and name its number in "+
			"secret_versions.")
	SecretEmpty = finding.New("secret_without_version",
		"It has no enabled version: a service that reads it does not start.",
		"Add its value: gcloud secrets versions add.")
)
