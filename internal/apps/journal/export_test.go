package journal

// The numbers of a calendar, for the test that compares them with Notice.
const (
	BelievedFor = believedFor
	ReadTime    = readTime
)
