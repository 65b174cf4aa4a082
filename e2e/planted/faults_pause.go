package main

const (
	pauses      = "internal/pause/pause.go"
	pausesDir   = "internal/pause"
	switching   = "internal/gcp/pubsub/switch.go"
	provisions  = "internal/gcp/pubsub/provision.go"
	googleDir   = "internal/gcp/pubsub"
	simulates   = "internal/standin/simulator.go"
	simulateDir = "internal/standin"
	holds       = "TestTheDoctorTellsAPauseThatHoldsFromOneThatDoesNot"
	byLabel     = "TestOnGoogleCloudAQueueIsPausedByOneRequestWithALabel"
)

// faultsOfPauses are those of queues that people pause.
var faultsOfPauses = []fault{
	{"the record is not read again behind a change", pauses, `		refused := err
		if found, err = k.Look(ctx, q); err != nil {`, `		refused := err
		if found.Subscription, _ = k.view(ctx, q); false {`, pausesDir, "TestWhateverHappensTheNextCommandMendsIt"},
	{"what was asked is reported", pauses, `	standing, err := k.Viewer.Standing(ctx, q)
	if err != nil {
		return Unknown, err.Error()
	}`, `	standing, err := k.Viewer.Standing(ctx, q)
	if standing = Paused; err != nil {
		return Unknown, err.Error()
	}`, pausesDir, "TestTheOutcomeIsWhatTheSubscriptionDoes"},
	{"a pause that is made again is not audited", pauses, `standing == Wanted(before) {`, `standing == Wanted(before) || true {`, pausesDir, "TestAPauseThatWasUndoneIsMendedAndAudited"},
	{"a paused subscription has no label", switching, `		want.Labels[PausedLabel] = mark`, `		want.Labels["paused"] = mark`, googleDir, byLabel},
	{"a resumed queue keeps its mark", switching, `	delete(want.Labels, PausedLabel)
`, `	delete(want.Labels, "")
`, googleDir, byLabel},
	{"provision undoes a pause", provisions, `	case standing(have) == pause.Paused:
`, `	case standing(have) == pause.Missing:
`, googleDir, byLabel},
	{"a subscription that is marked and pushes is taken for paused", switching, `	case marked && pushes:
`, `	case false:
`, googleDir, holds},
	{"a paused queue is pushed", simulates, `!s.closed && !sub.paused &&`, `!s.closed &&`, simulateDir, "TestAPausedQueueIsNotAttemptedHoweverLongAndGoesOnInOrder"},
}
