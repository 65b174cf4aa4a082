package main

const (
	grants       = "internal/gcp/pubsub/grants.go"
	strays       = "internal/gcp/pubsub/strays.go"
	installedDir = "internal/gcp/installed/"
)

// faultsOfTheDoctor are those by which it would call an installation healthy that is not.
var faultsOfTheDoctor = []fault{
	{"a grant under a condition is one", grants, `return b.Condition == nil && slices.Contains(enough, b.Role)`, `return slices.Contains(enough, b.Role)`,
		"internal/gcp/pubsub", "TestEachPublisherWithoutItsGrantIsFound"},
	{"what may not be looked at is as it should be", "internal/gcp/pubsub/doctor.go", `	denied := status.Code(err) == codes.PermissionDenied
	if denied {`, `	denied := status.Code(err) == codes.PermissionDenied
	if false {`, "internal/gcp/pubsub", "TestWhatTheDoctorMayNotLookAtIsNamedOneByOne"},
	{"who reads a topic from another project is not seen", strays, `if !s.seen[name] && !s.known.subscriptions[name]`, `if s.seen[name] && !s.known.subscriptions[name]`,
		"internal/gcp/pubsub", "TestWhatTheCatalogDoesNotHaveIsFound"},
	{"the label of another installation is this one's", strays, `return of == s.look.Label`, `return of != ""`,
		"internal/gcp/pubsub", "TestWhatTheCatalogDoesNotHaveIsFound"},
	{"a worker that everybody may call is well", installedDir + "services.go", `if slices.Contains(members, anybody) {`, `if slices.Contains(members, anybody) && service.InvokerIamDisabled {`,
		commandDir, "TestWhatIsWrongAroundTheQueuesIsFound"},
	{"what was not looked at is no failure", "cmd/billhook/doctor.go", `found.Healthy = !wrong && len(found.Unread) == 0`, `found.Healthy = !wrong`,
		commandDir, "TestWhatTheDoctorMayNotLookAtIsSaidAndIsNoHealth"},
}
