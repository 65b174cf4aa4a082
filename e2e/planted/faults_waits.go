package main

const waitingFile = "internal/ops/waiting.go"

// faultsOfWaiting are those by which something would wait unseen.
var faultsOfWaiting = []fault{
	{"what nobody has counted is nothing", waitingFile, `case q.Enabled:
			e.Unknown`, `case false:
			e.Unknown`, "internal/ops", "TestWhatWaitsIsAskedOfOneQueueOrOfAll"},
	{"a queue shows what waits of all", waitingFile, `equal["queue"] = queue`, `_ = queue`, "internal/ops", "TestQueuesCountWhatWaitsInEveryPlace"},
	{"what is parked is shown as delayed too", waitingFile, `max(0, w.Delayed.Count-w.Parked.Count)`, `max(0, w.Delayed.Count)`, "internal/ops", "TestQueuesCountWhatWaitsInEveryPlace"},
	{"the keys beyond those that are counted are forgotten", waitingFile, `Count{More: stopped.Next != ""}`, `Count{}`, "internal/ops", "TestWhatWaitsIsCountedInABoundedNumberOfReads"},
	{"every queue is asked though nothing waits", waitingFile, `p.of(&all).Count == 0`, `p.of(&all).Count < 0`, "internal/ops", "TestWhatWaitsIsCountedInABoundedNumberOfReads"},
	{"the newest message is taken for the oldest", "internal/standin/simulator.go", `published.Before(one.Oldest)`, `published.After(one.Oldest)`, "internal/standin", "TestTheSimulatorSaysWhatItHoldsAndSinceWhen"},
	{"a broker that nobody could ask is empty", "cmd/billhook/waiting.go", `case w.Unacknowledged == nil && q.Enabled:`, `case w.Unacknowledged == nil && !q.Enabled:`, "cmd/billhook", "TestACellSaysWhatWaitsAndWhere"},
}
