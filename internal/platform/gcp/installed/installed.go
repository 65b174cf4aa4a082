// Package installed examines an installation's resources besides Pub/Sub: its services on Cloud Run and who
// may call them, the job of its tasks, its secrets, and the grants on the whole project. It owns their names
// in Terraform, and the calls of Google's APIs. It changes no resource and reads no secret's value.
package installed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/cloudscheduler/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iap/v1"
	"google.golang.org/api/option"
	"google.golang.org/api/run/v2"
	"google.golang.org/api/secretmanager/v1"

	"billhook/catalog"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/store"
)

// Config describes an installation.
type Config struct {
	pubsub.Target // the target of pushes and tasks

	Catalog *catalog.Catalog
	Region  string // of the services and the job; empty: from a worker's address
	Name    string // the prefix of the names of the services, the job and the secrets
	// TasksPath is where the job of the tasks calls the worker.
	TasksPath string
}

const timeout = 10 * time.Second

// Installation is an installation to examine. It is safe for concurrent use.
type Installation struct {
	config   Config
	services *run.Service
	jobs     *cloudscheduler.Service
	secrets  *secretmanager.Service
	projects *cloudresourcemanager.Service
	proxy    *iap.Service
	policy   func() *cloudresourcemanager.Policy // of the whole project, read at the first call
	failed   error                               // why it could not be read
}

// Open returns the installation. Without options the client libraries find the credentials.
func Open(ctx context.Context, config Config, options ...option.ClientOption) (*Installation, error) {
	config.Region = cmp.Or(config.Region, config.region())
	i := &Installation{config: config}
	var failed [5]error
	i.services, failed[0] = run.NewService(ctx, options...)
	i.jobs, failed[1] = cloudscheduler.NewService(ctx, options...)
	i.secrets, failed[2] = secretmanager.NewService(ctx, options...)
	i.projects, failed[3] = cloudresourcemanager.NewService(ctx, options...)
	i.proxy, failed[4] = iap.NewService(ctx, options...)
	if err := errors.Join(failed[:]...); err != nil {
		return nil, fmt.Errorf("installed: clients: %w", err)
	}
	i.policy = sync.OnceValue(func() *cloudresourcemanager.Policy {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		request := &cloudresourcemanager.GetIamPolicyRequest{}
		policy, err := i.projects.Projects.GetIamPolicy(config.ProjectID, request).Context(ctx).Do()
		i.failed = err
		return cmp.Or(policy, &cloudresourcemanager.Policy{})
	})
	return i, nil
}

// address is Cloud Run's URL of a service's name, the project's number and the region.
var address = regexp.MustCompile(`^https://[a-z0-9-]+-[0-9]+\.([a-z]+-[a-z]+[0-9]+)\.run\.app$`)

func (c Config) region() string {
	for _, pool := range c.Catalog.Pools() {
		if parts := address.FindStringSubmatch(c.Of(pool).URL); parts != nil {
			return parts[1]
		}
	}
	return ""
}

// Found is the result of an examination. Accounts are the e-mail addresses of the services' accounts, by the
// names of catalog.Publishers, as far as the services could be read.
type Found struct {
	Findings []finding.Finding
	Unread   []finding.Unread
	Accounts map[string]string
}

// Examine returns the findings about the services, the jobs and the secrets, and what it could not read.
func (i *Installation) Examine(ctx context.Context) Found {
	found := Found{Accounts: map[string]string{}}
	if i.config.Region == "" {
		what := "services, jobs and secrets"
		found.Unread = []finding.Unread{{What: what, Why: "no worker's address names the region: set --region"}}
		return found
	}
	questions := []question{(*look).webhook, (*look).ops}
	for _, pool := range i.config.Catalog.Pools() {
		questions = append(questions, func(at *look, ctx context.Context) { at.worker(ctx, pool) })
	}
	questions = append(questions, (*look).job)
	looks := i.ask(ctx, questions)
	for _, at := range append(looks, i.ask(ctx, i.ofSecrets(looks))...) {
		if at.account != "" {
			found.Accounts[at.name] = at.account
		}
		found.Findings = append(found.Findings, at.findings...)
		found.Unread = append(found.Unread, at.unread...)
	}
	return found
}

func (i *Installation) ask(ctx context.Context, questions []question) []*look {
	looks := make([]*look, len(questions))
	_ = store.AtOnce(ctx, len(looks), func(ctx context.Context, n int) error { // each look has its own result
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		looks[n] = &look{Installation: i}
		questions[n](looks[n], ctx)
		return nil
	})
	return looks
}

// question examines one resource.
type question func(*look, context.Context)

// look has the result of a question.
type look struct {
	*Installation
	findings          []finding.Finding
	unread            []finding.Unread
	name, id, account string // a service's name in the catalog, and its id on Cloud Run
	reads             []version
}

type version struct{ secret, number string }

func (l *look) find(kind, id string, code finding.Code, have, want string) {
	l.findings = append(l.findings, code.Of(kind, id, have, want))
}

// missing reports whether the resource does not exist. It notes any other error as unread.
func (l *look) missing(err error, what, permission string) bool {
	if answered := new(googleapi.Error); errors.As(err, &answered) && answered.Code == http.StatusNotFound {
		return true
	}
	l.unread = append(l.unread, finding.Unread{What: what, Permission: permission, Why: why(err)})
	return false
}

// why returns the code of Google's answer, or the reason why there was none.
func why(err error) string {
	answered := new(googleapi.Error)
	switch {
	case errors.As(err, &answered):
		return strings.TrimSpace(fmt.Sprintf("%d %s", answered.Code, http.StatusText(answered.Code)))
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + timeout.String()
	default:
		return "no answer"
	}
}

func (i *Installation) parent() string {
	return "projects/" + i.config.ProjectID + "/locations/" + i.config.Region
}

const getProjectPolicy = "resourcemanager.projects.getIamPolicy"

// Permissions are the permissions that Examine and Inherits need.
var Permissions = []string{
	getService, getPolicy, getPeople, getJob, listSecrets, getVersion, listVersions, getProjectPolicy,
}

// Inherits reports whether a member holds one of the roles on the whole project, without a condition. If the
// grants cannot be read, no member does, and Unread says so.
func (i *Installation) Inherits(roles []string, is func(member string) bool) bool {
	return slices.ContainsFunc(i.policy().Bindings, func(b *cloudresourcemanager.Binding) bool {
		return b.Condition == nil && slices.Contains(roles, b.Role) && slices.ContainsFunc(b.Members, is)
	})
}

// Unread returns what Inherits could not read. Call it after all calls of Inherits.
func (i *Installation) Unread() []finding.Unread {
	if i.failed == nil {
		return nil
	}
	what := "whether what is said to be missing is granted on the whole project"
	return []finding.Unread{{What: what, Permission: getProjectPolicy, Why: why(i.failed)}}
}
