package main

const (
	indexFile  = "internal/standin/index.go"
	queryFile  = "internal/standin/query.go"
	standinDir = "internal/standin"

	queriesModel = "TestTheQueriesOfTheBoltStoreFollowTheModel"
)

// faultsOfStore are those of the embedded store's indexes, of the stand-in for the database, and of
// what finds its way to a topic.
var faultsOfStore = []fault{
	{"an index keeps what a document was", indexFile, `if err := one.bucket.Delete(key); err != nil {`, `if err := error(nil); err != nil {`, standinDir, queriesModel},
	{"a text in an index begins a longer one", indexFile, `append(binary.AppendUvarint([]byte("s"), uint64(len(v))), v...), true`, `append([]byte("s"), v...), true`, standinDir, queriesModel},
	{"times before 1970 come last", indexFile, `uint64(at.UnixMicro())^(1<<63)`, `uint64(at.UnixMicro())`, standinDir, queriesModel},
	{"what an older release has written is not indexed", indexFile, `bucket == nil || bucket.Sequence()+1 == uint64(tx.ID())`, `bucket == nil || bucket.Sequence() > 0`, standinDir, "TestWhatAReleaseWithoutIndexesHasWrittenIsFound"},
	{"a query goes on where its prefix has ended", queryFile, `!bytes.HasPrefix(key[len(at.begins):], []byte(l.IDPrefix))`, `false`, standinDir, queriesModel},
	{"what is due later is due", queryFile, `if bytes.Compare(key[:len(until)], until) > 0 {`, `if false {`, standinDir, queriesModel},
	{"a distant commit happens on the way there", "internal/standin/distant.go", `	answer := call()
	if err := d.wait(ctx, long-long/2); err != nil {`, `	if err := d.wait(ctx, long-long/2); err != nil {
		return err
	}
	if answer := call(); answer != nil {
		return answer
	}
	answer := error(nil)
	if err := ctx.Err(); err != nil {`, standinDir, "TestACallOfADistantStoreHappensHalfWayThrough"},
	{"nobody takes what is emitted to a shared topic", "internal/lane/emit.go", `} else if emission.RoutingKey == "" {`, `} else if emission.RoutingKey == "-" {`, "internal/lane", "TestAnEmissionIsCommittedWithItsLane"},
}
