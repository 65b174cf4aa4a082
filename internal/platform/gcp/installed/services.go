package installed

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/api/cloudscheduler/v1"
	"google.golang.org/api/run/v2"

	"billhook/catalog"
	"billhook/internal/platform/finding"
)

const (
	invoker    = "roles/run.invoker"
	allUsers   = "allUsers"
	ready      = "CONDITION_SUCCEEDED"
	underWay   = "CONDITION_RECONCILING"
	getService = "run.services.get"
	getPolicy  = "run.services.getIamPolicy"
)

// everybody are the members that need no account of this project.
var everybody = []string{allUsers, "allAuthenticatedUsers"}

// invoking are the roles that let a member call a service.
var invoking = []string{invoker, "roles/run.servicesInvoker", "roles/run.admin"}

// webhook looks at the webhook service.
func (l *look) webhook(ctx context.Context) {
	id := l.config.Name + "-webhook"
	service := l.service(ctx, id, catalog.Webhook)
	if service == nil || service.InvokerIamDisabled {
		return
	}
	if members, ok := l.callers(ctx, id); ok && !slices.Contains(members, allUsers) {
		l.find("service", id, DoorClosed, "a token is asked for", "anybody may call it")
	}
}

// worker looks at the worker of a pool.
func (l *look) worker(ctx context.Context, pool string) {
	id, account := l.config.Name+"-worker-"+pool, l.config.Pools[pool].Account
	service := l.service(ctx, id, catalog.WorkerOf(pool))
	if service == nil {
		return
	}
	if l.config.Audience != "" && !slices.Contains(service.CustomAudiences, l.config.Audience) {
		l.find("service", id, AudienceUnknown, cmp.Or(strings.Join(service.CustomAudiences, ", "), "none"), l.config.Audience)
	}
	if service.InvokerIamDisabled {
		l.find("service", id, WorkerOpen, "no token is asked for", invoker+" for those who call it")
		return
	}
	members, ok := l.callers(ctx, id)
	if !ok {
		return
	}
	for _, anybody := range everybody {
		if slices.Contains(members, anybody) {
			l.find("service", id, WorkerOpen, invoker+" for "+anybody, invoker+" for those who call it")
		}
	}
	is := func(member string) bool { return member == "serviceAccount:"+account }
	if account != "" && !slices.ContainsFunc(members, is) && !l.Inherits(ctx, append(slices.Clone(invoking), "roles/editor", "roles/owner"), is) {
		l.find("service", id, InvokerMissing, "", invoker+" for "+account)
	}
}

// service looks whether a service is there and ready. It is nil where it is not there, or could not be looked at.
func (l *look) service(ctx context.Context, id, name string) *run.GoogleCloudRunV2Service {
	service, err := l.services.Projects.Locations.Services.Get(l.parent() + "/services/" + id).Context(ctx).Do()
	if err != nil {
		if l.missing(err, "service "+id, getService) {
			code := WorkerMissing
			if name == catalog.Webhook {
				code = DoorMissing
			}
			l.find("service", id, code, "", "in "+l.config.Region)
		}
		return nil
	}
	switch state := condition(service); {
	case state.State == underWay || service.Reconciling:
		l.unread = append(l.unread, finding.Unread{What: "whether service " + id + " is ready", Why: "it is being changed: ask again"})
	case state.State != ready && service.LatestReadyRevision == "":
		l.find("service", id, NotReady, words(state), ready)
	case state.State != ready:
		l.find("service", id, NotUpdated, words(state), ready)
	}
	if service.Template == nil {
		return service
	}
	l.account = service.Template.ServiceAccount
	for _, container := range service.Template.Containers {
		for _, variable := range container.Env {
			if variable.ValueSource != nil && variable.ValueSource.SecretKeyRef != nil {
				ref := variable.ValueSource.SecretKeyRef
				l.reads = append(l.reads, version{secret: ref.Secret, number: ref.Version, service: id})
			}
		}
	}
	return service
}

// callers are the members who may call a service. It reports false where that could not be looked at.
func (l *look) callers(ctx context.Context, id string) (members []string, ok bool) {
	policy, err := l.services.Projects.Locations.Services.GetIamPolicy(l.parent() + "/services/" + id).Context(ctx).Do()
	if err != nil {
		if l.missing(err, "who may call service "+id, getPolicy) { // it was there a moment ago
			l.unread = append(l.unread, finding.Unread{What: "who may call service " + id, Why: "it is gone: ask again"})
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

// condition is what Cloud Run says of the service's newest configuration.
func condition(service *run.GoogleCloudRunV2Service) *run.GoogleCloudRunV2Condition {
	if service.TerminalCondition == nil {
		return &run.GoogleCloudRunV2Condition{}
	}
	return service.TerminalCondition
}

// words say why a service is not ready.
func words(state *run.GoogleCloudRunV2Condition) string {
	reason := cmp.Or(state.RevisionReason, state.ExecutionReason, state.Reason)
	return strings.Join(slices.DeleteFunc([]string{cmp.Or(state.State, "unknown"), reason, state.Message}, func(part string) bool { return part == "" }), ": ")
}

const (
	getJob  = "cloudscheduler.jobs.get"
	enabled = "ENABLED"
)

// job looks at the job that has Cloud Scheduler call a task.
func (l *look) job(ctx context.Context, task string) {
	id, pool := l.config.Name+"-"+task, l.config.Pools[l.config.TasksPool]
	job, err := l.jobs.Projects.Locations.Jobs.Get(l.parent() + "/jobs/" + id).Context(ctx).Do()
	if err != nil {
		if l.missing(err, "job "+id, getJob) {
			l.find("job", id, JobMissing, "", "POST "+pool.URL+"/tasks/"+task)
		}
		return
	}
	if job.State != enabled {
		l.find("job", id, JobPaused, cmp.Or(job.State, "unknown"), enabled)
	}
	target := job.HttpTarget
	if target == nil {
		target = &cloudscheduler.HttpTarget{}
	}
	want := "POST " + pool.URL + "/tasks/" + task
	if have := target.HttpMethod + " " + target.Uri; have != want {
		l.find("job", id, JobElsewhere, cmp.Or(have, "nothing"), want)
	}
	token := target.OidcToken
	if token == nil {
		token = &cloudscheduler.OidcToken{}
	}
	tokenOf := func(account, audience string) string {
		return cmp.Or(account, "no account") + " for " + cmp.Or(audience, "no audience")
	}
	if have, want := tokenOf(token.ServiceAccountEmail, token.Audience), tokenOf(pool.Account, l.config.Audience); have != want {
		l.find("job", id, JobUnidentified, have, want)
	}
}
