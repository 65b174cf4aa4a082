package installed

import (
	"cmp"
	"context"

	"google.golang.org/api/cloudscheduler/v1"
)

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
