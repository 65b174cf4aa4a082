package catalog_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/retry"
)

// small is the folder of the catalog that most tests change.
var small = filepath.Join("testdata", "small")

// text is what a file of a catalog says.
func text(t *testing.T, folder, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, file))
	require.NoError(t, err)
	return string(data)
}

// like copies the catalog of a folder, with other texts for some of its files.
func like(t *testing.T, folder string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(folder)))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// edited is the small catalog with old replaced by replacement in one of its files.
func edited(t *testing.T, file, old, replacement string) string {
	t.Helper()
	was := text(t, small, file)
	require.Contains(t, was, old)
	return like(t, small, map[string]string{file: strings.Replace(was, old, replacement, 1)})
}

var lineOfFile = regexp.MustCompile(`(?m)^([a-z]+\.yaml):[0-9]+:`)

// requireMistakes compares the mistakes with those wanted, one a line, without their lines in the
// files and in any order.
func requireMistakes(t *testing.T, err error, want string) {
	t.Helper()
	require.Error(t, err, want)
	require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(lineOfFile.ReplaceAllString(err.Error(), "$1:"), "\n"))
}

// requireLines looks each mistake up: what its line says begins with the key, or with what the key
// would stand in.
func requireLines(t *testing.T, err error, dir string) {
	t.Helper()
	for _, m := range catalog.Mistakes(err) {
		if m.Line == 0 {
			require.Empty(t, m.Where, m)
			continue
		}
		line := strings.Split(text(t, dir, m.File), "\n")[m.Line-1]
		said := strings.TrimLeft(line, " -{?[\"")
		if strings.Contains(m.Where, " number ") { // an entry without an id
			require.True(t, strings.HasPrefix(strings.TrimSpace(line), "- "), m)
			continue
		}
		if m.File == "messages.yaml" { // a declaration stands on one line
			require.Contains(t, line, ": {", m)
			continue
		}
		names := append(strings.FieldsFunc(m.Key, func(r rune) bool { return strings.ContainsRune(`."[]`, r) }), "id", strings.Trim(m.Where[strings.LastIndex(m.Where, " ")+1:], `"`))
		require.True(t, slices.ContainsFunc(names, func(name string) bool { return name != "" && strings.HasPrefix(said, name) }), "%s: line %d is %s", m, m.Line, line)
	}
}

func TestEachMistakeNamesFileQueueAndKey(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct{ file, old, replacement, want string }{
		// What cannot be read.
		"an empty file":                         {"products.yaml", "products:\n  \"1001\": { points: 10 }\n", "", "products.yaml: is empty"},
		"a list for a file":                     {"products.yaml", "products:\n", "- x\n- products:\n", "products.yaml: must be a map"},
		"a second document":                     {"products.yaml", "products:", "---\na: b\n---\nproducts:", "products.yaml: must hold one document; everything after a second --- would be ignored"},
		"a byte order mark":                     {"products.yaml", "products:", "\ufeffproducts:", "products.yaml: must be UTF-8 without a byte order mark"},
		"an unknown key of the file":            {"queues.yaml", "outbound_topics:", "outgoing_topics:", "queues.yaml: outgoing_topics: unknown key\nqueues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id seat-news"},
		"an unknown key of a queue":             {"queues.yaml", "    priority: low", "    priority: low\n    prefetch: 3", "queues.yaml: queue reminders: prefetch: unknown key"},
		"an unknown key in a handler":           {"queues.yaml", "timeout: \"5s\"", "time_out: \"5s\"", "queues.yaml: queue bookings: handlers.seat.freed.time_out: unknown key"},
		"a pool of the tasks that none is in":   {"queues.yaml", "defaults:\n", "tasks_pool: letter\ndefaults:\n", "queues.yaml: tasks_pool: no enabled queue is in pool letter"},
		"a pool of the tasks that does not run": {"queues.yaml", "defaults:\n", "tasks_pool: letters\ndefaults:\n", "queues.yaml: tasks_pool: no enabled queue is in pool letters"},
		"a pool of the tasks that is a number":  {"queues.yaml", "defaults:\n", "tasks_pool: 7\ndefaults:\n", "queues.yaml: tasks_pool: must be a string"},
		"a pool of the tasks without a name":    {"queues.yaml", "defaults:\n", "tasks_pool: \"\"\ndefaults:\n", "queues.yaml: tasks_pool: no enabled queue is in pool \"\""},
		"a pool among the defaults":             {"queues.yaml", "  contract: message.v1", "  contract: message.v1\n  pool: seats", "queues.yaml: defaults.pool: unknown key"},
		"a word for a number":                   {"queues.yaml", "max_attempts: 3\n        retry", "max_attempts: three\n        retry", "queues.yaml: queue bookings: handlers.seat.freed.max_attempts: must be a whole number"},
		"a fraction for a number":               {"queues.yaml", "ack_deadline_seconds: 60", "ack_deadline_seconds: 60.5", "queues.yaml: defaults.ack_deadline_seconds: must be a whole number"},
		"a number beyond 64 bits":               {"products.yaml", "points: 10", "points: 99999999999999999999", "products.yaml: product 1001: points: 99999999999999999999 means different things to different readers of YAML; quote it, or write it as true, false or a plain decimal number"},
		"a number for a string":                 {"queues.yaml", "pool: letters", "pool: 7", "queues.yaml: queue reminders: pool: must be a string"},
		"a string for a truth":                  {"queues.yaml", "enabled: true", "enabled: \"true\"", "queues.yaml: queue bookings: enabled: must be true or false"},
		"a string for a list":                   {"queues.yaml", "[seat_id]", "seat_id", "queues.yaml: queue bookings: ordering_key: must be a list"},
		"a list for a map":                      {"queues.yaml", "    handlers:\n      reminder: { name: letters.send }", "    handlers: [reminder]", "queues.yaml: queue reminders: handlers: must be a map"},
		"a queue that is a word":                {"queues.yaml", "queues:\n", "queues:\n  - seats\n", "queues.yaml: queue number 1: must be a map"},
		"minutes for seconds":                   {"queues.yaml", "lease: \"120s\"", "lease: 2m", `queues.yaml: defaults.lease: must be a duration in seconds, in quotes, such as "600s"`},
		"a duration without a unit":             {"queues.yaml", "lease: \"120s\"", "lease: 120", `queues.yaml: defaults.lease: must be a duration in seconds, in quotes, such as "600s"`},
		"a negative duration":                   {"queues.yaml", "jitter: \"1s\"", "jitter: \"-1s\"", `queues.yaml: defaults.retry_policy.jitter: must be a duration in seconds, in quotes, such as "600s"`},
		"a bad wait in a schedule":              {"queues.yaml", `"5s", "30s"`, `"5 s", "30s"`, `queues.yaml: queue reminders: retry_policy.schedule[1]: must be a duration in seconds, in quotes, such as "600s"`},

		// What a queue must be.
		"an id too short":                        {"queues.yaml", "id: reminders", "id: re", "queues.yaml: queue re: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"},
		"an id with a colon":                     {"queues.yaml", "id: reminders", "id: \"q:reminders\"", "queues.yaml: queue q:reminders: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"},
		"an id that begins with goog":            {"queues.yaml", "id: reminders", "id: google-reminders", "queues.yaml: queue google-reminders: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"},
		"an id without room for -dlq-hold":       {"queues.yaml", "id: reminders", "id: " + strings.Repeat("a", 247), "queues.yaml: queue " + strings.Repeat("a", 247) + ": id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"},
		"no id":                                  {"queues.yaml", "  - id: reminders\n    desc", "  - desc", "queues.yaml: queue number 2: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"},
		"an id used twice":                       {"queues.yaml", "id: seat-news", "id: reminders", "queues.yaml: outbound topic reminders: id: reminders is taken by queues.yaml: queue reminders, id\nqueues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id seat-news"},
		"an alias that is an id":                 {"queues.yaml", "alias: seat.news", "alias: bookings", "queues.yaml: outbound topic seat-news: alias: bookings is taken by queues.yaml: queue bookings, id"},
		"an id that is another's dead letters":   {"queues.yaml", "id: reminders", "id: bookings-dlq", "queues.yaml: queue bookings-dlq: id: bookings-dlq is taken by queues.yaml: queue bookings, id"},
		"an alias with a space":                  {"queues.yaml", "q:bookings", "the bookings", "queues.yaml: queue bookings: alias: must be at most 100 of a-z, 0-9 and _ . : -, and begin with a letter"},
		"no description":                         {"queues.yaml", "    description: Letters to those who forgot.\n", "", "queues.yaml: queue reminders: description: is missing"},
		"a contract of tomorrow":                 {"queues.yaml", "    priority: low", "    priority: low\n    contract: message.v9", "queues.yaml: queue reminders: contract: must be one of paynow.v1, envelope.v1, message.v1"},
		"an unknown priority":                    {"queues.yaml", "priority: low", "priority: medium", "queues.yaml: queue reminders: priority: must be high, normal or low"},
		"a pool in capitals":                     {"queues.yaml", "pool: letters", "pool: Letters", "queues.yaml: queue reminders: pool: must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -"},
		"a binding that is none":                 {"queues.yaml", `"seat.#"`, `"seat.x#"`, "queues.yaml: queue bookings: bindings: must list patterns of words, * and # joined by dots, each once"},
		"a binding twice":                        {"queues.yaml", `"seat.*"`, `"seat.#"`, "queues.yaml: queue bookings: bindings: must list patterns of words, * and # joined by dots, each once"},
		"a binding that matches nothing":         {"queues.yaml", `"seat.*"]`, `"chair.*"]`, "queues.yaml: queue bookings: bindings: no message.v1 message that is declared matches \"chair.*\""},
		"a binding that no handler covers":       {"queues.yaml", `"seat.*"]`, `reminder]`, "queues.yaml: queue bookings: bindings: no handler takes what reminder lets through"},
		"a handler that no binding lets through": {"queues.yaml", "      seat.taken: {", "      reminder: { name: letters.send }\n      seat.taken: {", "queues.yaml: queue bookings: handlers.reminder: no binding lets it through"},
		"a shared topic without bindings":        {"queues.yaml", `    bindings: ["seat.#", "seat.*"]` + "\n", "", "queues.yaml: queue bookings: bindings: a queue on a shared topic needs some; # takes all"},
		"a topic that nobody declares":           {"queues.yaml", "topic: seats", "topic: chairs", "queues.yaml: queue bookings: topic: no shared topic has the id chairs"},
		"a topic by its alias":                   {"queues.yaml", "topic: seats", "topic: seats.exchange", "queues.yaml: queue bookings: topic: no shared topic has the id seats.exchange"},
		"a shared topic with a queue's name":     {"topics.yaml", "id: seats", "id: reminders", "queues.yaml: queue bookings: topic: no shared topic has the id seats\nqueues.yaml: queue reminders: id: reminders is taken by topics.yaml: topic reminders, id"},
		"a shared topic that says nothing":       {"topics.yaml", "    description: Everything about seats.\n", "", "topics.yaml: topic seats: description: is missing"},
		"an unknown key of a topic":              {"topics.yaml", "alias: seats.exchange", "exchange: seats.exchange", "topics.yaml: topic seats: exchange: unknown key"},
		"an alias of dead letters with a space":  {"queues.yaml", "    priority: high", "    priority: high\n    dead_letter: { aliases: [lost, the lost] }", "queues.yaml: queue bookings: dead_letter.aliases: must be at most 100 of a-z, 0-9 and _ . : -, and begin with a letter"},
		"an alias of dead letters that is taken": {"queues.yaml", "    priority: high", "    priority: high\n    dead_letter: { aliases: [seats.exchange] }", "queues.yaml: queue bookings: dead_letter.aliases: seats.exchange is taken by topics.yaml: topic seats, alias"},
		"dead letters' aliases that are no list": {"queues.yaml", "    priority: high", "    priority: high\n    dead_letter: { aliases: lost }", "queues.yaml: queue bookings: dead_letter.aliases: must be a list"},
		"an ordering key twice":                  {"queues.yaml", "[seat_id]", "[seat_id, seat_id]", "queues.yaml: queue bookings: ordering_key: must list names of fields, each once"},

		// Whom its handlers tell.
		"an emission to nobody":                      {"queues.yaml", "[seat-news]", "[seat-olds]", "queues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id seat-olds"},
		"an emission to the alias of a topic":        {"queues.yaml", "[seat-news]", "[seat.news]", "queues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id seat.news"},
		"an emission to dead letters":                {"queues.yaml", "[seat-news]", "[bookings-dlq]", "queues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id bookings-dlq"},
		"an emission that is listed twice":           {"queues.yaml", "[seat-news]", "[seat-news, seat-news]", "queues.yaml: queue bookings: handlers.seat.freed.emits: lists seat-news twice"},
		"an emission to a queue that is not enabled": {"queues.yaml", "[seat-news]", "[reminders]", "queues.yaml: queue bookings: handlers.seat.freed.emits: queue reminders is not enabled"},
		"an emission that is no list":                {"queues.yaml", "[seat-news]", "seat-news", "queues.yaml: queue bookings: handlers.seat.freed.emits: must be a list"},
		"an emission where it runs to nobody":        {"queues.yaml", "emits: [seat-news]", "emits: [seat-news]\n        emits_if_run: [letters]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: no queue has the id letters"},
		"an emission where it runs to a topic":       {"queues.yaml", "emits: [seat-news]", "emits_if_run: [seat-news]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: no queue has the id seat-news"},
		"an emission where it runs by an alias":      {"queues.yaml", "emits: [seat-news]", "emits_if_run: [\"q:bookings\"]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: no queue has the id q:bookings"},
		"an emission where it runs, listed twice":    {"queues.yaml", "emits: [seat-news]", "emits: [seat-news]\n        emits_if_run: [reminders, reminders]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: lists reminders twice"},
		"an emission where it runs, and in any case": {"queues.yaml", "emits: [seat-news]", "emits: [seat-news, bookings]\n        emits_if_run: [bookings]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: lists bookings twice"},
		"emissions where they run that are no list":  {"queues.yaml", "emits: [seat-news]", "emits_if_run: reminders", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run: must be a list"},
		"a number for a queue that need not run":     {"queues.yaml", "emits: [seat-news]", "emits_if_run: [7]", "queues.yaml: queue bookings: handlers.seat.freed.emits_if_run[0]: must be a string"},
		"a wait for what follows, in minutes":        {"queues.yaml", "timeout: \"5s\"", "waits_for: 15m", `queues.yaml: queue bookings: handlers.seat.freed.waits_for: must be a duration in seconds, in quotes, such as "600s"`},
		"a wait for what follows without a unit":     {"queues.yaml", "timeout: \"5s\"", "waits_for: 900", `queues.yaml: queue bookings: handlers.seat.freed.waits_for: must be a duration in seconds, in quotes, such as "600s"`},
		"a wait for what follows below nothing":      {"queues.yaml", "timeout: \"5s\"", "waits_for: \"-1s\"", `queues.yaml: queue bookings: handlers.seat.freed.waits_for: must be a duration in seconds, in quotes, such as "600s"`},
		"a wait for what follows of a month":         {"queues.yaml", "timeout: \"5s\"", "waits_for: \"2592001s\"", "queues.yaml: queue bookings: handlers.seat.freed.waits_for: must be at most 2592000s"},
		"a number for a topic":                       {"queues.yaml", "[seat-news]", "[7]", "queues.yaml: queue bookings: handlers.seat.freed.emits[0]: must be a string"},
		"an outbound topic that is no topic":         {"queues.yaml", "id: seat-news", "id: Seat-News", "queues.yaml: outbound topic Seat-News: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog\nqueues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id seat-news"},
		"an outbound topic's odd alias":              {"queues.yaml", "alias: seat.news", "alias: seat news", "queues.yaml: outbound topic seat-news: alias: must be at most 100 of a-z, 0-9 and _ . : -, and begin with a letter"},
		"an outbound topic that says nothing":        {"queues.yaml", "    description: What became of the seats.\n", "", "queues.yaml: outbound topic seat-news: description: is missing"},

		// Messages.
		"a shape that there is not":               {"messages.yaml", "sent_at: timestamp", "sent_at: text", "messages.yaml: message.v1: reminder: version 1: sent_at: \"text\" is not a shape: amount, boolean, code, currency, flake, id, integer, quantity, timestamp, uid, an integer's bounds such as \"integer 0..100\", a list or an object"},
		"bounds that are none":                    {"messages.yaml", "integer 0..9", "integer 9..0", "messages.yaml: message.v1: reminder: version 1: parts: pages: bounds are two numbers, 0 between them unless it is required"},
		"an amount in no currency":                {"messages.yaml", ", currency: currency", "", "messages.yaml: message.v1: seat.taken: version 2: price: an amount has its currency beside it"},
		"a version in words":                      {"messages.yaml", "    2: {", "    two: {", "messages.yaml: message.v1: seat.taken: two: a version is a number"},
		"a version twice":                         {"messages.yaml", "    2: {", "    1: {", "messages.yaml: message.v1: seat.taken: 1: the key stands here twice"},
		"messages of a format that declares none": {"messages.yaml", "message.v1:", "paynow.v1:", "messages.yaml: paynow.v1: reminder: version 1: no format of that name has declared contents\nmessages.yaml: paynow.v1: seat.*: version 1: no format of that name has declared contents\nmessages.yaml: paynow.v1: seat.taken: version 1: no format of that name has declared contents\nmessages.yaml: paynow.v1: seat.taken: version 2: no format of that name has declared contents\nqueues.yaml: queue bookings: ordering_key: seat_id is no attribute, and no member of a message.v1 body"},
		"an event type that is no pattern":        {"messages.yaml", "\"seat.*\"", "\"seat..*\"", "messages.yaml: message.v1: seat..*: version 1: routing: not a pattern of words, * and # joined by dots: word 2"},
		"a list of two":                           {"messages.yaml", "pages: \"integer 0..9\" }", "pages: integer }, { kind: code }", "messages.yaml: message.v1: reminder: 1: parts: must be a shape, an object, or a list of one object and perhaps its bounds, such as 0..100\nmessages.yaml: message.v1: reminder: version 1: parts: \"\" is not a shape: amount, boolean, code, currency, flake, id, integer, quantity, timestamp, uid, an integer's bounds such as \"integer 0..100\", a list or an object"},
		"a handler of what nothing declares":      {"queues.yaml", "      reminder: { name", "      recall: { name", "queues.yaml: queue reminders: handlers.recall: is declared by no message.v1 contract"},
		"an ordering key that nothing declares":   {"queues.yaml", "[seat_id]", "[row_id]", "queues.yaml: queue bookings: ordering_key: row_id is no attribute, and no member of a message.v1 body"},

		// Its numbers and how they stand to each other.
		"no attempt": {"queues.yaml", "max_attempts: 3\n    retry", "max_attempts: 0\n    retry", "queues.yaml: queue reminders: max_attempts: must be 1 to 50"},
		"more attempts than the broker leaves room":    {"queues.yaml", "max_attempts: 3\n    retry", "max_attempts: 51\n    retry", "queues.yaml: queue reminders: max_attempts: must be 1 to 50"},
		"more waits than attempts":                     {"queues.yaml", `"5s", "30s"`, `"5s", "30s", "60s"`, "queues.yaml: queue reminders: retry_policy.schedule: lists 4 waits for 3 attempts"},
		"a schedule that falls":                        {"queues.yaml", `"5s", "30s"`, `"50s", "30s"`, "queues.yaml: queue reminders: retry_policy.schedule: a wait must not be shorter than the one before"},
		"a schedule of days":                           {"queues.yaml", `"5s", "30s"`, `"5s", "86401s"`, "queues.yaml: queue reminders: retry_policy.schedule: a wait must be at most 86400s"},
		"an empty schedule":                            {"queues.yaml", `["0s", "5s", "30s"]`, `[]`, "queues.yaml: queue reminders: retry_policy.schedule: lists no wait"},
		"a schedule and a growth":                      {"queues.yaml", `schedule: ["0s", "5s", "30s"]`, `schedule: ["0s", "5s", "30s"]` + "\n      multiplier: 2", "queues.yaml: queue reminders: retry_policy: a schedule stands alone, without the other keys"},
		"a backoff upside down":                        {"queues.yaml", `minimum_backoff: "2s"`, `minimum_backoff: "601s"`, "queues.yaml: queue bookings: handlers.seat.freed.retry_policy.minimum_backoff: must be at most maximum_backoff, 600s"},
		"a backoff of days":                            {"queues.yaml", `minimum_backoff: "2s"`, `maximum_backoff: "86401s"`, "queues.yaml: queue bookings: handlers.seat.freed.retry_policy.maximum_backoff: must be above 0 and at most 86400s"},
		"a multiplier that shrinks":                    {"queues.yaml", `minimum_backoff: "2s"`, `multiplier: 0.5`, "queues.yaml: queue bookings: handlers.seat.freed.retry_policy.multiplier: must be 1 to 10"},
		"more jitter than wait":                        {"queues.yaml", `minimum_backoff: "2s"`, `jitter: "601s"`, "queues.yaml: queue bookings: handlers.seat.freed.retry_policy.jitter: must be at most maximum_backoff, 600s"},
		"an ack deadline of 9 s":                       {"queues.yaml", "    priority: low", "    priority: low\n    ack_deadline_seconds: 9\n    handler_timeout: \"5s\"", "queues.yaml: queue reminders: ack_deadline_seconds: must be 10 to 600"},
		"an ack deadline beyond the lease":             {"queues.yaml", "    priority: low", "    priority: low\n    ack_deadline_seconds: 121", "queues.yaml: queue reminders: lease: must be at least ack_deadline_seconds, 121s"},
		"an ack deadline that overflows to 60 s":       {"queues.yaml", "    priority: low", "    priority: low\n    lease: \"999999999s\"\n    ack_deadline_seconds: 36028797018964028", "queues.yaml: queue reminders: ack_deadline_seconds: must be 10 to 600"},
		"a handler as slow as the ack deadline":        {"queues.yaml", "    priority: low", "    priority: low\n    handler_timeout: \"60s\"", "queues.yaml: queue reminders: ack_deadline_seconds: must be above handler_timeout, 60s"},
		"an event type as slow as the ack deadline":    {"queues.yaml", "timeout: \"5s\"", "timeout: \"60s\"", "queues.yaml: queue bookings: handlers.seat.freed.timeout: must be below ack_deadline_seconds, 60s"},
		"a handler without time":                       {"queues.yaml", "timeout: \"5s\"", "timeout: \"0s\"", "queues.yaml: queue bookings: handlers.seat.freed.timeout: must be above 0"},
		"an event type without a try":                  {"queues.yaml", "max_attempts: 3\n        retry", "max_attempts: 0\n        retry", "queues.yaml: queue bookings: handlers.seat.freed.max_attempts: must be 1 to 50"},
		"a handler without a name":                     {"queues.yaml", "reminder: { name: letters.send }", "reminder: {}", "queues.yaml: queue reminders: handlers.reminder.name: must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter"},
		"an event type with an empty word":             {"queues.yaml", "reminder: {", "\"reminder..x\": {", "queues.yaml: queue reminders: handlers.reminder..x: must be an event type, or a pattern of them: at most 64 of a-z, 0-9 and _ - * #, in words joined by dots"},
		"an event type in capitals":                    {"queues.yaml", "reminder: {", "REMINDER: {", "queues.yaml: queue reminders: handlers.REMINDER: must be an event type, or a pattern of them: at most 64 of a-z, 0-9 and _ - * #, in words joined by dots"},
		"an enabled queue without handlers":            {"queues.yaml", "    handlers:\n      reminder: { name: letters.send }", "    enabled: true", "queues.yaml: queue reminders: handlers: an enabled queue needs some"},
		"a retention under 10 minutes":                 {"queues.yaml", "    priority: low", "    priority: low\n    message_retention_duration: \"599s\"", "queues.yaml: queue reminders: message_retention_duration: must be 600s to 2678400s"},
		"a retention over 31 days":                     {"queues.yaml", "    priority: low", "    priority: low\n    remember_for: \"2678401s\"\n    message_retention_duration: \"2678401s\"", "queues.yaml: queue reminders: message_retention_duration: must be 600s to 2678400s"},
		"a life longer than the retention":             {"queues.yaml", "message_ttl: \"3600s\"", "message_ttl: \"604801s\"", "queues.yaml: queue bookings: message_ttl: must be at most message_retention_duration, 604800s"},
		"a memory under 72 hours":                      {"queues.yaml", "    priority: low", "    priority: low\n    remember_for: \"259199s\"\n    message_retention_duration: \"1200s\"", "queues.yaml: queue reminders: remember_for: must be at least 259200s, 72 hours, or 0s, which is no record"},
		"no memory of what is kept as a dead letter":   {"queues.yaml", "    priority: low", "    priority: low\n    remember_for: \"0s\"", "queues.yaml: queue reminders: remember_for: must be above 0s unless the queue is unordered, tries once, drops what fails, refuses corrections, and emits nothing: without records that is all it can do"},
		"a memory shorter than the retention":          {"queues.yaml", "    priority: low", "    priority: low\n    remember_for: \"604799s\"", "queues.yaml: queue reminders: remember_for: must be at least message_retention_duration, 604800s"},
		"a memory shorter than the dead letters' life": {"queues.yaml", "    priority: high", "    priority: high\n    remember_for: \"1209599s\"", "queues.yaml: queue bookings: remember_for: must be at least dead_letter.retention, 1209600s"},
		"no time for any handler":                      {"queues.yaml", "    priority: low", "    priority: low\n    handler_timeout: \"0s\"", "queues.yaml: queue reminders: handler_timeout: must be above 0"},
		"no lease":                                     {"queues.yaml", "    priority: low", "    priority: low\n    lease: \"0s\"", "queues.yaml: queue reminders: lease: must be above 0"},
		"no concurrency":                               {"queues.yaml", "concurrency: 10", "concurrency: 0", "queues.yaml: defaults.concurrency: must be 1 to 1000"},
		"more instances at least than at most":         {"queues.yaml", "    priority: low", "    priority: low\n    min_instances: 3", "queues.yaml: queue reminders: min_instances: must be 0 to max_instances"},
		"no instance":                                  {"queues.yaml", "    priority: low", "    priority: low\n    max_instances: 0", "queues.yaml: queue reminders: max_instances: must be 1 to 1000"},
		"a backlog below nothing":                      {"queues.yaml", "    priority: low", "    priority: low\n    backlog_alert_above: -1", "queues.yaml: queue reminders: backlog_alert_above: must not be negative"},
		"an alert for each message that waits":         {"queues.yaml", `oldest_alert: "900s"`, `oldest_alert: "659s"`, "queues.yaml: defaults.oldest_alert: must be at least the broker's longest wait and the attempt after it, 660s"},
		"an alert that is nowhere":                     {"queues.yaml", `    oldest_alert: "800s"`, `    oldest_alert: "0s"`, "queues.yaml: queue reminders: oldest_alert: must be at least the broker's longest wait and the attempt after it, 660s"},
		"an alert when messages are useless":           {"queues.yaml", `oldest_alert: "900s"`, `oldest_alert: "3600s"`, "queues.yaml: queue bookings: oldest_alert: must be below message_ttl, 3600s"},
		"an alert when messages are gone":              {"queues.yaml", `    oldest_alert: "800s"`, `    oldest_alert: "604800s"`, "queues.yaml: queue reminders: oldest_alert: must be below message_retention_duration, 604800s"},
		"an unknown way to take a correction":          {"queues.yaml", "four_eyes: false", "four_eyes: false\n  on_corrected: maybe", "queues.yaml: defaults.on_corrected: must be refuse or accept"},
		"an unknown name of an event":                  {"queues.yaml", "four_eyes: false", "four_eyes: false\n  dedupe_by: payload", "queues.yaml: defaults.dedupe_by: must be event_id or idempotency_key"},
		"a key that no body names":                     {"queues.yaml", "four_eyes: false", "four_eyes: false\n  dedupe_by: idempotency_key", "queues.yaml: defaults.dedupe_by: must be event_id: a message.v1 body names no idempotency key"},
		"a wait for a slot beyond the ack deadline":    {"queues.yaml", `slot_wait: "2s"`, `slot_wait: "30s"`, "queues.yaml: defaults.slot_wait: must be 0 or more, and with the longest timeout below ack_deadline_seconds, 60s"},
		"a nack budget of hours":                       {"queues.yaml", `nack_budget: "10s"`, `nack_budget: "3601s"`, "queues.yaml: defaults.nack_budget: must be 0s, which is no limit, to 3600s"},
		"an unknown way to end":                        {"queues.yaml", "on_terminal: ack", "on_terminal: nack", "queues.yaml: defaults.on_terminal: must be ack or reject"},
		"dead letters dropped and kept":                {"queues.yaml", "drop: true", "drop: true\n      aliases: [lost-reminders]", "queues.yaml: queue reminders: dead_letter.drop: a queue that drops has no aliases, retention, alerts or warnings"},
		"dead letters kept 13 days":                    {"queues.yaml", "    retention: \"1209600s\"", "    retention: \"1123200s\"", "queues.yaml: defaults.dead_letter.retention: must be 1209600s, 14 days, to 2678400s"},
		"an alert below nothing":                       {"queues.yaml", "alert_above: 0", "alert_above: -1", "queues.yaml: defaults.dead_letter.alert_above: must not be negative"},
		"no queue":                                     {"queues.yaml", "queues:\n", "queues: []\nunused:\n", "queues.yaml: queues: there is none\nqueues.yaml: unused: unknown key\nsources.yaml: source box-office: events.seat.taken: no queue has the id bookings"},

		// Products and sources.
		"a product worth nothing":              {"products.yaml", "points: 10", "points: 0", "products.yaml: product 1001: points: must be 1 to 1000000000"},
		"a product worth too much":             {"products.yaml", "points: 10", "points: 1000000001", "products.yaml: product 1001: points: must be 1 to 1000000000"},
		"a product without points":             {"products.yaml", "{ points: 10 }", "{}", "products.yaml: product 1001: points: must be 1 to 1000000000"},
		"a product id with a slash":            {"products.yaml", "\"1001\"", "\"10/01\"", `products.yaml: product "10/01": id: must be at most 128 of letters, digits and . _ : -, and begin with a letter or digit`},
		"a product id that no order may name":  {"products.yaml", "\"1001\"", "\"10~01\"", `products.yaml: product "10~01": id: must be at most 128 of letters, digits and . _ : -, and begin with a letter or digit`},
		"an unknown scheme":                    {"sources.yaml", "scheme: generic", "scheme: none", "sources.yaml: source box-office: scheme: must be paynow, generic or standard"},
		"another program's secret":             {"sources.yaml", "WEBHOOK_SECRET_BOX_OFFICE", "OPS_TOKEN", "sources.yaml: source box-office: secret_variable: must be an environment variable that begins with WEBHOOK_"},
		"a body over 1 MiB":                    {"sources.yaml", "65536", "1048577", "sources.yaml: source box-office: max_body_bytes: must be 1024 to 1048576"},
		"a rate without a burst":               {"sources.yaml", "burst: 20", "burst: 0", "sources.yaml: source box-office: burst: must be above 0 where rate_per_second is, and only there"},
		"a burst that is no limit":             {"sources.yaml", "burst: 20", "burst: 1000001", "sources.yaml: source box-office: burst: must be 0 to 1000000"},
		"a negative rate":                      {"sources.yaml", "rate_per_second: 10", "rate_per_second: -1", "sources.yaml: source box-office: burst: must be above 0 where rate_per_second is, and only there\nsources.yaml: source box-office: rate_per_second: must be 0, which is no limit, to 1000000"},
		"metadata where none can be":           {"sources.yaml", "burst: 20", "burst: 20\n    uid_metadata_key: checkout.metadata.uid", "sources.yaml: source box-office: uid_metadata_key: is for the paynow scheme alone"},
		"metadata without a path":              {"sources.yaml", "scheme: generic", "scheme: paynow\n    uid_metadata_key: uid", "sources.yaml: source box-office: uid_metadata_key: must be checkout.metadata. and one name of letters, digits and _"},
		"metadata that is the buyer's address": {"sources.yaml", "scheme: generic", "scheme: paynow\n    uid_metadata_key: customer.name", "sources.yaml: source box-office: uid_metadata_key: must be checkout.metadata. and one name of letters, digits and _"},
		"metadata inside metadata":             {"sources.yaml", "scheme: generic", "scheme: paynow\n    uid_metadata_key: checkout.metadata.user.id", "sources.yaml: source box-office: uid_metadata_key: must be checkout.metadata. and one name of letters, digits and _"},
		"an order where none can be":           {"sources.yaml", "burst: 20", "burst: 20\n    order_id_metadata_key: checkout.metadata.order_id", "sources.yaml: source box-office: order_id_metadata_key: is for the paynow scheme alone, and must be checkout.metadata. and one name of letters, digits and _"},
		"an order without a path":              {"sources.yaml", "scheme: generic", "scheme: paynow\n    order_id_metadata_key: order_id", "sources.yaml: source box-office: order_id_metadata_key: is for the paynow scheme alone, and must be checkout.metadata. and one name of letters, digits and _"},
		"an order inside metadata":             {"sources.yaml", "scheme: generic", "scheme: paynow\n    order_id_metadata_key: checkout.metadata.order.id", "sources.yaml: source box-office: order_id_metadata_key: is for the paynow scheme alone, and must be checkout.metadata. and one name of letters, digits and _"},
		"an order that is the uid":             {"sources.yaml", "scheme: generic", "scheme: paynow\n    uid_metadata_key: checkout.metadata.id\n    order_id_metadata_key: checkout.metadata.id", "sources.yaml: source box-office: order_id_metadata_key: must be another one than uid_metadata_key"},
		"an order that is a number":            {"sources.yaml", "scheme: generic", "scheme: paynow\n    order_id_metadata_key: 7", "sources.yaml: source box-office: order_id_metadata_key: must be a string"},
		"a source without events":              {"sources.yaml", "      seat.taken: bookings\n", "      {}\n", "sources.yaml: source box-office: events: there is none"},
		"an event for no queue":                {"sources.yaml", "seat.taken: bookings", "seat.taken: booking", "sources.yaml: source box-office: events.seat.taken: no queue has the id booking"},
		"an event for an alias":                {"sources.yaml", "seat.taken: bookings", "seat.taken: \"q:bookings\"", "sources.yaml: source box-office: events.seat.taken: no queue has the id q:bookings"},
		"an event for a queue that is not on":  {"sources.yaml", "seat.taken: bookings", "reminder: reminders", "sources.yaml: source box-office: events.reminder: queue reminders is not enabled"},
		"an event that its queue cannot take":  {"sources.yaml", "seat.taken: bookings", "seat.sold: bookings", "sources.yaml: source box-office: events.seat.sold: queue bookings handles only seat.freed, seat.taken"},
		"an event type with a space":           {"sources.yaml", "seat.taken: bookings", "\"seat taken\": bookings", "sources.yaml: source box-office: events.\"seat taken\": must be an event type: at most 64 of letters, digits and _ . -, beginning with a letter\nsources.yaml: source box-office: events.\"seat taken\": queue bookings handles only seat.freed, seat.taken"},
		"an account that may send nowhere":     {"sources.yaml", "      seat.taken: bookings\n", "      seat.taken: bookings\naccounts:\n  jobs: []\n", "sources.yaml: account jobs: to: lists no queue and no topic"},
		"an account that may send to no queue": {"sources.yaml", "      seat.taken: bookings\n", "      seat.taken: bookings\naccounts:\n  jobs: [booking, \"q:bookings\"]\n", "sources.yaml: account jobs: to: no queue and no shared topic has the id booking\nsources.yaml: account jobs: to: no queue and no shared topic has the id q:bookings"},
		"an account that sends twice":          {"sources.yaml", "      seat.taken: bookings\n", "      seat.taken: bookings\naccounts:\n  jobs: [bookings, bookings]\n", "sources.yaml: account jobs: to: lists bookings twice"},
		"an account whose name is no word":     {"sources.yaml", "      seat.taken: bookings\n", "      seat.taken: bookings\naccounts:\n  Cron/Jobs: [bookings]\n", `sources.yaml: account "Cron/Jobs": name: must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter`},
		"an account whose queues are no list":  {"sources.yaml", "      seat.taken: bookings\n", "      seat.taken: bookings\naccounts:\n  jobs: bookings\n", "sources.yaml: account jobs: to: must be a list"},
		"a source whose name is no path of it": {"sources.yaml", "box-office:", "Box/Office:", `sources.yaml: source "Box/Office": name: must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			dir := edited(t, test.file, test.old, test.replacement)
			_, err := catalog.Load(dir)
			requireMistakes(t, err, test.want)
			requireLines(t, err, dir)
		})
	}
}

func TestTwoHandlersForOneTypeAreRefusedWhereNeitherIsNarrower(t *testing.T) {
	t.Parallel()
	for second, want := range map[string]string{
		`"#.taken.#"`: "queues.yaml: queue bookings: handlers.\"#.late.#\": holds event types that \"#.taken.#\" holds too, and neither is narrower",
		`"*.taken"`:   "", // it says more of the first word
	} {
		dir := edited(t, "queues.yaml", "      seat.taken: {", `      "#.late.#": { name: seats.see }`+"\n      "+second+": { name: seats.see }\n      seat.taken: {")
		_, err := catalog.Load(like(t, dir, map[string]string{"messages.yaml": text(t, small, "messages.yaml") + "  \"#\":\n    1: { seat_id: id! }\n"}))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		requireMistakes(t, err, want)
	}
}

// What YAML readers disagree about: each is valid YAML, and is refused.
func TestYAMLTrapsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		key       = "queues.yaml: queue reminders: "
		ambiguous = " means different things to different readers of YAML; quote it, or write it as true, false or a plain decimal number"
	)
	for sentence, test := range map[string]struct{ old, replacement, want string }{
		"on for true":                 {"    priority: low", "    priority: low\n    enabled: on", key + "enabled: on" + ambiguous},
		"no for false":                {"    priority: low", "    priority: low\n    enabled: no", key + "enabled: no" + ambiguous},
		"Yes for true":                {"    priority: low", "    priority: low\n    enabled: Yes", key + "enabled: Yes" + ambiguous},
		"TRUE for true":               {"    priority: low", "    priority: low\n    enabled: TRUE", key + "enabled: TRUE" + ambiguous},
		"y for a string":              {"pool: letters", "pool: y", key + "pool: y" + ambiguous},
		"a key that is off":           {"reminder: {", "off: {", key + "handlers.off: off" + ambiguous},
		"an octal number":             {"    priority: low", "    priority: low\n    concurrency: 0777", key + "concurrency: 0777" + ambiguous},
		"an octal number of YAML 1.2": {"    priority: low", "    priority: low\n    concurrency: 0o17", key + "concurrency: 0o17" + ambiguous},
		"a hexadecimal number":        {"    priority: low", "    priority: low\n    concurrency: 0x10", key + "concurrency: 0x10" + ambiguous},
		"a number with underscores":   {"    priority: low", "    priority: low\n    concurrency: 1_0", key + "concurrency: 1_0" + ambiguous},
		"a number with a plus":        {"    priority: low", "    priority: low\n    concurrency: +10", key + `concurrency: "+10"` + ambiguous},
		"a number with an exponent":   {"    priority: low", "    priority: low\n    concurrency: 1e1", key + "concurrency: 1e1" + ambiguous},
		"a number in base 60":         {"description: Letters to those who forgot.", "description: 10:30", key + "description: 10:30" + ambiguous},
		"infinity":                    {"schedule: [\"0s\", \"5s\", \"30s\"]", "multiplier: .inf", key + `retry_policy.multiplier: ".inf"` + ambiguous},
		"a date":                      {"description: Letters to those who forgot.", "description: 2026-11-21", key + "description: 2026-11-21" + ambiguous},
		"nothing":                     {"description: Letters to those who forgot.", "description:", key + "description: has no value; leave the key out"},
		"null":                        {"description: Letters to those who forgot.", "description: ~", key + "description: has no value; leave the key out"},
		"a tag":                       {"pool: letters", "pool: !!str letters", key + "pool: tags are not read"},
		"an anchor":                   {"pool: letters", "pool: &p letters", key + "pool: anchors, aliases and merge keys are not read; write it out"},
		"an alias":                    {"pool: letters", "pool: *p", "queues.yaml: is not YAML: yaml: unknown anchor 'p' referenced"},
		"an alias of an anchor":       {"priority: low\n    pool: letters", "priority: &p low\n    pool: *p", key + "pool: anchors, aliases and merge keys are not read; write it out\n" + key + "priority: anchors, aliases and merge keys are not read; write it out"},
		"a merge key":                 {"      drop: true", "      <<: { drop: true }", key + `dead_letter."<<": anchors, aliases and merge keys are not read; write it out`},
		"a duplicate key":             {"    priority: low", "    priority: low\n    priority: low", key + "priority: the key stands here twice"},
		"a number for a key":          {"reminder: {", "1: {", key + "handlers.1: a key must be a string; quote it"},
		"a list for a key":            {"reminder: {", "? [a]\n      : {", key + `handlers."": a key must be a string; quote it`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Load(edited(t, "queues.yaml", test.old, test.replacement))
			requireMistakes(t, err, test.want)
		})
	}
}

func TestEveryMistakeIsToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := catalog.Load(filepath.Join("testdata", "wrong"))
	requireMistakes(t, err, strings.Join([]string{
		"products.yaml: product 1001: points: must be 1 to 1000000000",
		"products.yaml: product 1002: points: must be a whole number",
		"products.yaml: product 1002: price: unknown key",
		"queues.yaml: defaults.lease: must be a duration in seconds, in quotes, such as \"600s\"",
		"queues.yaml: queue bookings: ack_deadline_seconds: must be above handler_timeout, 90s",
		"queues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id box-office",
		"queues.yaml: queue bookings: handlers.seat.freed.retries: unknown key",
		"queues.yaml: queue bookings: handlers.seat.taken.timeout: must be below ack_deadline_seconds, 60s",
		"queues.yaml: queue bookings: retry_policy.minimum_backoff: must be at most maximum_backoff, 600s",
		"queues.yaml: queue number 2: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog",
		"queues.yaml: queue number 2: pool: must be a string",
		"queues.yaml: queue number 2: remember_for: must be above 0s unless the queue is unordered, tries once, drops what fails, refuses corrections, and emits nothing: without records that is all it can do",
		"sources.yaml: source box-office: events.seat.sold: queue bookings handles only seat.freed, seat.taken",
		"sources.yaml: source box-office: events.seat.taken: no queue has the id reminders",
		"sources.yaml: source box-office: secret_variable: must be an environment variable that begins with WEBHOOK_",
	}, "\n"))
}

func TestAFolderMustHoldAllThreeFiles(t *testing.T) {
	t.Parallel()
	dir := like(t, small, nil)
	require.NoError(t, os.Remove(filepath.Join(dir, "products.yaml")))
	_, err := catalog.Load(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "products.yaml: ")
	_, err = catalog.Load(filepath.Join(dir, "elsewhere"))
	var joined interface{ Unwrap() []error }
	require.ErrorAs(t, err, &joined)
	require.Len(t, joined.Unwrap(), 3)
}

func TestAQueueTakesWhatItLeavesOpenFromTheDefaults(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(small)
	require.NoError(t, err)
	require.Equal(t, []catalog.Topic{{ID: "seat-news", Alias: "seat.news", Description: "What became of the seats."}}, c.OutboundTopics)
	require.Equal(t, map[string]catalog.Product{"1001": {Points: 10}}, c.Products)
	require.Equal(t, map[string]catalog.Source{"box-office": {
		Name: "box-office", Scheme: catalog.SchemeGeneric, SecretVariable: "WEBHOOK_SECRET_BOX_OFFICE", MaxBodyBytes: 65536,
		RatePerSecond: 10, Burst: 20, Events: map[string]string{"seat.taken": "bookings"},
	}}, c.Sources)

	growing := retry.Policy{Base: 10 * time.Second, Max: 600 * time.Second, Multiplier: 2, Jitter: time.Second}
	quick := growing
	quick.Base = 2 * time.Second
	require.Equal(t, catalog.Queue{
		ID: "bookings", Alias: "q:bookings", Description: "Seats taken and given back.", Enabled: true, Contract: "message.v1",
		SharedTopic: "seats", Bindings: []routing.Pattern{"seat.#", "seat.*"}, OrderingKey: []string{"seat_id"}, Priority: "high", Pool: "seats",
		Handlers: map[string]catalog.Handler{
			"seat.taken": {Name: "seats.take", MaxAttempts: 5, Backoff: growing, Timeout: 30 * time.Second},
			"seat.freed": {Name: "seats.free", Emits: []string{"seat-news"}, MaxAttempts: 3, Backoff: quick, Timeout: 5 * time.Second},
		},
		MaxAttempts: 5, Backoff: growing, AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second,
		MessageTTL: time.Hour, MessageRetention: 7 * 24 * time.Hour, RememberFor: 30 * 24 * time.Hour,
		Concurrency: 10, SlotWait: 2 * time.Second, NackBudget: 10 * time.Second, MaxInstances: 2, OldestAlert: 15 * time.Minute, OnTerminal: catalog.Ack, OnCorrected: catalog.Refuse, DedupeBy: catalog.ByEventID,
		DeadLetter: catalog.DeadLetter{Topic: "bookings-dlq", Retention: 14 * 24 * time.Hour, OldestAlert: 4 * time.Hour},
	}, c.Queues[0])
	require.Equal(t, catalog.DeadLetter{Drop: true}, c.Queues[1].DeadLetter)
	require.Equal(t, retry.Policy{Schedule: []time.Duration{0, 5 * time.Second, 30 * time.Second}}, c.Queues[1].Backoff)
}

func TestAQueueIsFoundByIDAndByAlias(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(small)
	require.NoError(t, err)
	for name, want := range map[string]string{"bookings": "bookings", "q:bookings": "bookings", "reminders": "reminders", "": "", "seat-news": "", "bookings-dlq": ""} {
		q, ok := c.Queue(name)
		require.Equal(t, want != "", ok, name)
		require.Equal(t, want, q.ID, name)
	}
}

// An installation may set all of its products in the store.
func TestACatalogMayHaveNoProduct(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(edited(t, "products.yaml", "products:\n  \"1001\": { points: 10 }", "products: {}"))
	require.NoError(t, err)
	require.Empty(t, c.Products)
	_, err = catalog.Load(edited(t, "products.yaml", "products:\n  \"1001\": { points: 10 }", "products:"))
	requireMistakes(t, err, "products.yaml: products: has no value; leave the key out")
}
