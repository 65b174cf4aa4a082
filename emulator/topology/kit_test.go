package topology

import "context"

// Unchanged returns an error unless the plan is empty.
func (t Terraform) Unchanged(ctx context.Context, broker, workerURL string) error {
	return t.run(ctx, broker, workerURL, "plan", "-detailed-exitcode")
}

// Destroy removes what Apply has created.
func (t Terraform) Destroy(ctx context.Context, broker, workerURL string) error {
	return t.run(ctx, broker, workerURL, "destroy", "-auto-approve")
}
