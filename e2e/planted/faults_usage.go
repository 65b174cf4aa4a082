package main

const (
	tracks    = "internal/usage/track.go"
	periods   = "internal/usage/period.go"
	subscribe = "internal/billing/subscriptions.go"
	usageDir  = "internal/usage"

	sumOfEntries = "TestUsageIsTheSumOfItsEntriesOnTheEmbeddedStore"
	thresholds   = "TestEachThresholdIsToldOnceInAPeriod"
	usageBounds  = "TestWhatIsNotCountedIsADeadLetterWithAReason"
)

// faultsOfUsage are those by which usage is counted twice, not at all, in another period, or nobody is warned.
var faultsOfUsage = []fault{
	{"a total is written over what came between", tracks, `store.Update(key, c.version, store.Encode(&total))`, `store.Set(key, store.Encode(&total))`, usageDir, sumOfEntries},
	{"an event that was forgotten is counted again", tracks, `store.Create(made, store.Encode(&entry))`, `store.Set(made, store.Encode(&entry))`, usageDir, sumOfEntries},
	{"an entry with another quantity passes for the event's own", tracks, `entry.Quantity != said.quantity ||`, ``, usageDir, "TestAnEventWhoseRecordIsGoneIsCountedOnce"},
	{"a copy that comes after the grace is a dead letter", tracks, `		// It may be a copy of one that was in time.
		if counted, err := t.counted(ctx, key, said); counted || err != nil {`, `		if counted, err := false, error(nil); counted || err != nil {`, usageDir, "TestAnEventWhoseRecordIsGoneIsCountedOnce"},
	{"a threshold is told again after a correction", tracks, `percent > total.Warned &&`, ``, usageDir, thresholds},
	{"a threshold is told once it is passed, and not when it is reached", tracks, `total.Used*100 >= total.Quota*percent`, `total.Used*100 > total.Quota*percent`, usageDir, thresholds},
	{"usage warns a queue that does not run", tracks, `if t.Warnings.ID == "" {`, `if false {`, usageDir, "TestNobodyIsWarnedWhereTheQueueOfTheWarningsDoesNotRun"},
	{"an event from the future is counted", tracks, `case said.occurred.After(now.Add(t.Limits.Ahead)):`, `case false:`, usageDir, usageBounds},
	{"a late event is counted for ever", tracks, `case now.After(period.settles.Add(t.Limits.Grace)):`, `case false:`, usageDir, usageBounds},
	{"a period's end is part of it", periods, `if at.Before(told.End) {`, `if !at.After(told.End) {`, usageDir, "TestAnEventIsCountedInThePeriodThatHoldsIt"},
	{"the period that was told first holds for good", periods, `"~" + latestFirst(told) + "~"`, `"~" + fmt.Sprint(told.UnixMicro()) + "~"`, usageDir, "TestAnEventIsCountedInThePeriodThatHoldsIt"},
	{"a subscription's period is not kept", subscribe, `writes = append(writes, period)`, `_ = period`, "internal/billing", "TestEachTypeOfSubscriptionEventIsKeptAndTold"},
}
