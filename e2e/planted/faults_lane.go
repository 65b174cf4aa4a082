package main

const (
	delay   = "internal/lane/delay.go"
	inLine  = "TestWhateverWaitsBehindWhateverAKeyIsDoneInOrder"
	stopped = "TestALaneThatIsStoppedIsLeftAsItIs"
)

// faultsOfLane are those of how messages of one ordering key wait in line.
var faultsOfLane = []fault{
	{"a lane that was stopped is relayed", relay, `if l.Stopped {`, `if false {`, laneDir, stopped},
	{"a lane is not stopped by its dead letter", delay, `next.Stopped, next.DueAt, next.OldestAt, next.ExpireAt = true, never, never, time.Time{}`, `next.DueAt, next.OldestAt = never, never`, laneDir, stopped},
	{"what joins a lane makes it younger", delay, `if !l.Holds() {`, `if next.OldestAt = due; !l.Holds() {`, laneDir, "TestAMessageThatJoinsALaneDoesNotMakeItYounger"},
	{"nobody knows how long a broken entry waits", relay, `oldest.CreatedAt, l.OldestAt)`, `oldest.CreatedAt)`, laneDir, "TestAnEntryThatCannotBeReadIsKeptAndStopsItsLaneAlone"},
	{"what is put aside again is overtaken", delay, `next.Held = t.number`, `next.Held = l.Held`, laneDir, inLine},
	{"what is put aside again goes to the end of its line", delay, `	if !again {
		t.rank`, `	if t.rank = 0; true {
		t.rank`, laneDir, inLine},
	{"what comes back waits for ever", relay, `l.stamp(e.Message)`, `e.Message`, laneDir, inLine},
	{"a lane is over before its last message", delay, `l.entryID(t) != l.Newest`, `t.rank == 0`, laneDir, "TestALaneIsOverWithItsLastMessage"},
	{"a lane that was changed is written over", lanes, `store.Update(l.key, l.version, next.fields())`, `store.Set(l.key, next.fields())`, laneDir, inLine},
}
