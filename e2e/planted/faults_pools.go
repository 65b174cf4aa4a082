package main

const (
	blocks     = "internal/webhook/blocks.go"
	doorLimits = "internal/webhook/limits.go"
	backlogDir = "internal/backlog"

	together = "TestInstancesTogetherKeepToTheirLimits"
	uneven   = "TestARateThatBlocksDoNotDivideEvenlyHoldsInEachSecond"
)

// faultsOfPools are those of limits at the door, and of what waits.
var faultsOfPools = []fault{
	{"a block that another instance has is used too", blocks, `store.Create(store.Key{Collection: BlocksCollection`, `store.Set(store.Key{Collection: BlocksCollection`, webhookDir, together},
	{"a block lets through more than its share", blocks, `return (block+1)*l.perSecond/n - block*l.perSecond/n`, `return (l.perSecond+n-1)/n`, webhookDir, uneven},
	{"what is left of a second is good in the next", blocks, `left: max(1, l.perSecond/freeShare)`, `left: l.second.left + max(1, l.perSecond/freeShare)`, webhookDir, uneven},
	{"a clock that is set back gives a second again", blocks, `if now := l.now().Unix(); now > l.second.unix {`, `if now := l.now().Unix(); now != l.second.unix {`, webhookDir, "TestAClockThatIsSetBackGivesNothingTwice"},
	{"a store that does not answer is asked for each message", blocks, `l.second.open, l.second.unknown = open, err != nil`, `l.second.open = open`, webhookDir, "TestAStoreThatDoesNotAnswerRefusesNothing"},
	{"a rate that is not known refuses", blocks, `			return true, err
		}
		if !found`, `			return false, err
		}
		if !found`, webhookDir, "TestAStoreThatDoesNotAnswerRefusesNothing"},
	{"one user uses up what is for all", doorLimits, `if q.Rate.PerUser > 0 && user != "" {`, `if false {`, webhookDir, "TestOneUserDoesNotUseUpWhatIsForAll"},
	{"users are kept for ever", doorLimits, `if second := l.config.Now().Unix(); second > l.second {`, `if second := l.config.Now().Unix(); l.users == nil {`, webhookDir, "TestUsersBeyondThoseThatAreCountedAreNotLimitedEachForItself"},
	{"a user's id is in a document", doorLimits, `hex.EncodeToString(sum[:16])`, `hex.EncodeToString(sum[:0]) + user`, webhookDir, "TestAUserStandsInNoDocument"},
	{"a backlog is read for each message", doorLimits, `l.readAt = now // others go by what there is meanwhile`, `_ = now`, webhookDir, "TestABacklogIsReadEveryTenSecondsAndRefusesNothingWhereItIsNotKnown"},
	{"a queue that is to alert alone refuses", doorLimits, `if q.MaxBacklog.OnFull != catalog.RefuseMore {`, `if q.MaxBacklog.Messages == 0 {`, webhookDir, "TestAFullQueueRefusesWhereItsBoundSaysSo"},
	{"an old count refuses", "internal/backlog/backlog.go", `return held, known && now.Sub(c.At) <= GoodFor`, `return held, known`, backlogDir, "TestACountIsReadAsItWasWritten"},
	{"a count is said to be newer than it is", "internal/tasks/backlogs.go", `backlog.Write(ctx, s.Store, at, counted)`, `backlog.Write(ctx, s.Store, at.Add(s.Now().Sub(at)), counted)`, tasksDir, "TestTheBacklogsOfQueuesAreWrittenInOneDocument"},
}
