package installed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/googleapi"

	"billhook/internal/platform/finding"
)

const getProjectPolicy = "resourcemanager.projects.getIamPolicy"

// Permissions are those that Examine and Inherits take.
var Permissions = []string{getService, getPolicy, getJob, listSecrets, getVersion, listVersions, getProjectPolicy}

// project is who holds what on the whole project, read at the first question.
type project struct {
	once   sync.Once
	policy *cloudresourcemanager.Policy
	err    error
}

// Inherits reports whether a member of the project holds one of the roles on all of it, whatever the hour. Where that
// cannot be looked at none does, and Unread says so.
func (i *Installation) Inherits(ctx context.Context, roles []string, is func(member string) bool) bool {
	i.project.once.Do(func() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		i.project.policy, i.project.err = i.projects.Projects.GetIamPolicy(i.config.Project, &cloudresourcemanager.GetIamPolicyRequest{}).Context(bounded).Do()
	})
	if i.project.err != nil {
		return false
	}
	return slices.ContainsFunc(i.project.policy.Bindings, func(b *cloudresourcemanager.Binding) bool {
		return b.Condition == nil && slices.Contains(roles, b.Role) && slices.ContainsFunc(b.Members, is)
	})
}

// Unread is what a question to Inherits could not look at. It is asked once all questions are.
func (i *Installation) Unread() []finding.Unread {
	if i.project.err == nil {
		return nil
	}
	why, answered := "nobody answers", new(googleapi.Error)
	if errors.As(i.project.err, &answered) {
		why = fmt.Sprintf("%d %s", answered.Code, http.StatusText(answered.Code))
	}
	return []finding.Unread{{What: "whether what is said to be missing is granted on the whole project", Permission: getProjectPolicy, Why: why}}
}
