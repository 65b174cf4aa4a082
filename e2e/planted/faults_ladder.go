package main

const (
	codec    = "internal/store/codec.go"
	problem  = "internal/serve/problem.go"
	storeDir = "internal/store"
	serveDir = "internal/serve"
)

var faultsOfLadder = []fault{
	{"a time is stored as it is spelled", codec, `return v.UTC().Truncate(time.Microsecond)`, `return *v`, storeDir, "TestAStructIsStoredByItsTags"},
	{"a field that decides may be missing", codec, `if (m.required && !there) ||`, `if false ||`, storeDir, "TestWhatDecidesMustBeReadable"},
	{"a zero time is a time", codec, `return v.IsZero()`, `return v == nil`, storeDir, "TestStoredDocumentsAreWhatTheyWere"},
	{"bytes are stored as text", codec, `ok && !utf8.Valid(*data) {`, `ok && *data == nil && !utf8.Valid(*data) {`, storeDir, "TestAStructIsStoredByItsTags"},
	{"a message that is half readable passes for whole", codec, `return ok && decode(fields, into) == nil`, `_ = decode(fields, into); return ok`, storeDir, "TestWhatDoesNotDecideIsLeftOutWhereItIsNotReadable"},
	{"an error is answered by the rung of another", problem, `if errors.Is(err, rung.Of) {`, `if err != nil {`, serveDir, "TestAnErrorIsAnsweredByItsRung"},
	{"an answer has no Retry-After", problem, `if p.RetryAfter > 0 {`, `if p.RetryAfter < 0 {`, serveDir, "TestAProblemIsADocumentWithItsHeaders"},
	{"what was corrected before it arrived is lost", "internal/deadletter/deadletter.go", `item := arrived`, `item := Item{Kept: arrived.Kept}`, storeDir, "TestStoredDocumentsAreWhatTheyWere"},
}
