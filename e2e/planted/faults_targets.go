package main

// faultsOfTargets are those of calling other services, and of keeping to oneself what they do.
var faultsOfTargets = []fault{
	{"an event that is not known is a failure of its target", callee, `	if nothing {
		failure = nil`, `	if false {
		failure = nil`, notifyDir, "TestAnEventThatIsNotKnownIsAnAnswerAndNoFailure"},
	{"an address in a problem document is kept", "internal/delivery/problem.go", `found, is := pii.Detect(pii.UID, text); is`, `found, is := pii.Detect(pii.UID, text); is && false`, notifyDir, "TestWhatARefusalSaysIsKeptAsFarAsItMay"},
	{"used up attempts headline the cause", "internal/retry/answers.go", `Verdict: Verdict{Class: Rejected, Reason: means.Reason, Counts: true}, Err: last`, `Verdict: Verdict{Class: Rejected, Reason: attemptsExhausted, Counts: true}, Err: last`, "internal/retry", "TestAFailureThatIsTheLastKeepsItsReason"},
	{"a call has no bound on its answer", callee, `io.LimitReader(response.Body, most+1)`, `io.LimitReader(response.Body, 1000*most)`, notifyDir, "TestATargetThatMeansHarmTakesNoMoreThanItsTimeAndItsBytes"},
	{"an answer that is too long is what was done", callee, `errors.Is(err, errTooLong):`, `errors.Is(err, errTooLong) && r.Method == "":`, notifyDir, "TestACallReturnsNoMoreThanWasAskedFor"},
	{"a refusal hides behind its body", callee, `		case failure != nil:
`, "", notifyDir, "TestACallReturnsNoMoreThanWasAskedFor"},
	{"a stream fills four megabytes unread", targetLimits, `MaxReceiveBufferPerStream: 64 << 10, `, "", notifyDir, "TestAStreamThatNobodyReadsIsSmall"},
	{"who leaves opens the breaker", targetLimits, `return errors.Is(err, context.Canceled) }`, `return false }`, notifyDir, "TestACallerThatLeavesNeitherOpensNorHoldsABreaker"},
	{"a target that has gone is asked again", "internal/retry/answers.go", `Permanent("callee_gone_410", nil)`, `Transient("callee_gone_410", nil)`, notifyDir, "TestAnAnswerSaysWhatBecomesOfTheMessage"},
	{"an old form of IPv6 is public", targetLimits, `|| (ip.Is6() && !global.Contains(ip))`, "", notifyDir, "TestOnlyAnInternalTargetIsDialledAtAPrivateAddress"},
	{"an open breaker of the only target is kept", plan, `asked > wait && (v.means.Counts || !q.oneTarget):`, `asked > wait:`, workerDir, "TestTheBacklogOfTheOnlyTargetStaysWithTheBrokerWhileItsBreakerIsOpen"},
	{"two paths are two targets", "internal/push/push.go", `cmp.Or(spec.Post.Target, spec.Name)`, `cmp.Or(spec.Name, spec.Post.Target)`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"what was nacked untried is kept when it comes back", plan, `if p.way == redelivered && !v.means.Counts {`, `if false {`, pushDir, "TestWhatWasNackedWithoutAnAttemptIsTriedWhenItComesBack"},
}
