package catalog_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// terraformBinary returns the path of terraform, or skips where it may be missing.
func terraformBinary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it starts Terraform")
	}
	terraform, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
	require.NoError(t, err, "CI leaves nothing out")
	return terraform
}

// expand applies the catalog module to a folder: it has no provider and makes nothing,
// so an apply is its outputs and needs no network. It returns what terraform printed too.
func expand(t *testing.T, terraform, folder string) (expanded, printed []byte, err error) {
	t.Helper()
	folder, err = filepath.Abs(folder)
	require.NoError(t, err)
	// A copy: terraform keeps its state beside the configuration.
	module := t.TempDir()
	require.NoError(t, os.CopyFS(module, os.DirFS(filepath.Join("..", "terraform", "modules", "catalog"))))
	run := func(arguments ...string) ([]byte, error) {
		command := exec.CommandContext(t.Context(), terraform, arguments...)
		command.Dir = module
		command.Env = append(os.Environ(), "TF_VAR_directory="+folder, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		return command.CombinedOutput()
	}
	printed, err = run("apply", "-auto-approve", "-input=false", "-no-color")
	if err != nil {
		return nil, printed, err
	}
	if printed, err = run("output", "-raw", "hash"); err != nil {
		return nil, printed, err
	}
	expanded, err = run("output", "-raw", "json")
	return expanded, printed, err
}

func TestTerraformExpandsTheCatalogToTheBytesThatGoDoes(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	for name, folder := range map[string]string{
		"the shipped catalog": ".",
		"a small one":         small,
		"one whose defaults, schedules and parts of a second differ": filepath.Join("testdata", "crooked"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := catalog.Load(folder)
			require.NoError(t, err)
			want, err := c.JSON()
			require.NoError(t, err)
			expanded, printed, err := expand(t, terraform, folder)
			require.NoError(t, err, "%s", printed)
			var have bytes.Buffer
			require.NoError(t, json.Indent(&have, expanded, "", "  "), "%s", expanded)
			require.Equal(t, string(want), have.String())
			require.Equal(t, c.Hash(), string(printed))
		})
	}
}

func TestTerraformRefusesWhatTheLoaderRefuses(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	_, printed, err := expand(t, terraform, posting(t, "", ""))
	require.NoError(t, err, "%s", printed)
	type change struct{ old, replacement, told string }
	refused := func(sentence, folder, told string) {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Load(folder)
			require.Error(t, err)
			_, printed, err := expand(t, terraform, folder)
			require.Error(t, err, "%s", printed)
			// Terraform breaks long lines.
			require.Contains(t, strings.Join(strings.Fields(string(printed)), " "), told)
		})
	}
	for sentence, test := range map[string]change{ // of the small catalog's queues.yaml
		"a handler's time above the ack deadline":    {`handler_timeout: "30s"`, `handler_timeout: "61s"`, "ack_deadline_seconds"},
		"a lease below the ack deadline":             {`lease: "120s"`, `lease: "59s"`, "lease"},
		"a topic that begins with goog":              {"id: bookings", "id: goog-bookings", "begin with a letter"},
		"a topic that is too long":                   {"id: seat-news", "id: seat-news" + string(bytes.Repeat([]byte("x"), 250)), "3 to 246"},
		"a threshold below nothing":                  {"alert_above: 0", "alert_above: -1", "alert_above"},
		"an alert for each message that waits":       {`oldest_alert: "900s"`, `oldest_alert: "659s"`, "oldest_alert"},
		"an alert when messages are useless":         {`oldest_alert: "900s"`, `oldest_alert: "3600s"`, "below message_ttl"},
		"a wait for a slot beyond the ack deadline":  {`slot_wait: "2s"`, `slot_wait: "30s"`, "slot_wait: must be 0 or more"},
		"an alert when messages are gone":            {`    oldest_alert: "800s"`, `    oldest_alert: "604800s"`, "oldest_alert: must be below"},
		"a dead letter that is not kept for 14 days": {`retention: "1209600s"`, `retention: "86400s"`, "dead_letter.retention"},
		"a schedule with another key":                {`schedule: ["0s", "5s", "30s"]`, "schedule: [\"0s\"]\n      jitter: \"1s\"", "schedule"},
		"a schedule that shrinks":                    {`["0s", "5s", "30s"]`, `["0s", "30s", "5s"]`, "schedule"},
		"an unknown key":                             {"priority: low", "priority: low\n    prioritty: low", "unknown"},
		"a duration without its unit":                {`message_ttl: "3600s"`, `message_ttl: "3600"`, "duration"},
		"a pool of the tasks that none is in":        {"defaults:\n", "tasks_pool: letters\ndefaults:\n", "tasks_pool: no enabled queue is in pool letters"},
		"two queues of one name":                     {"id: reminders", "id: bookings", "twice"},
		"corrections that may be taken":              {"on_terminal: ack", "on_terminal: ack\n  on_corrected: maybe", "on_corrected: must be refuse or accept"},
		"a key that no body names":                   {"on_terminal: ack", "on_terminal: ack\n  dedupe_by: idempotency_key", "dedupe_by: must be event_id: a message.v1 body names no idempotency key"},
		"an emission to nobody":                      {"[seat-news]", "[seat-olds]", "handlers.seat.freed.emits: no queue or topic has the id seat-olds"},
		"an emission to the alias of a topic":        {"[seat-news]", "[seat.news]", "handlers.seat.freed.emits: no queue or topic has the id seat.news"},
		"an emission that is listed twice":           {"[seat-news]", "[seat-news, seat-news]", "handlers.seat.freed.emits: lists a topic twice"},
		"an emission to a queue that is not enabled": {"[seat-news]", "[reminders]", "handlers.seat.freed.emits: queue reminders is not enabled"},
		"an emission to a topic that nobody takes":   {"[seat-news]", "[empty]", "handlers.seat.freed.emits: no enabled queue takes messages of topic empty"},
		"a topic that nobody declares":               {"topic: seats", "topic: chairs", "topic: no shared topic has the id chairs"},
		"a shared topic without bindings":            {`bindings: ["seat.#", "seat.*"]`, "bindings: []", "bindings: a queue on a shared topic needs some; # takes all"},
		"a binding that is none":                     {`"seat.#"`, `"seat.x#"`, "bindings: must list patterns of words"},
		"a binding twice":                            {`"seat.*"`, `"seat.#"`, "bindings: must list patterns of words"},
		"bindings that are no list":                  {`["seat.#", "seat.*"]`, "seat", "bindings: must list patterns of words"},
		"an event type that is no pattern":           {"seat.taken: {", `"seat..taken": {`, "handlers.seat..taken: must be an event type, or a pattern of them"},
		"a handler and a post":                       {"{ name: letters.send }", "{ name: letters.send, post: { target: office, path: /letters } }", "handlers.reminder.post: stands in the place of name"},
		"a post to nobody":                           {"{ name: letters.send }", "{ post: { path: /letters } }", "handlers.reminder.post: target: no target has the name"},
		"a post to an address":                       {"{ name: letters.send }", "{ post: { target: office, path: office } }", "handlers.reminder.post: path: must be / and a segment"},
		"an unknown key of a post":                   {"{ name: letters.send }", "{ post: { target: office, path: /letters, method: PUT } }", "handlers.reminder.post: has a key that is not known"},
		"an alias of dead letters with a space":      {"priority: high", "priority: high\n    dead_letter: { aliases: [the lost] }", "dead_letter.aliases: must be names"},
		"an alias of dead letters that is taken":     {"priority: high", "priority: high\n    dead_letter: { aliases: [seats.exchange] }", "seats.exchange is named twice"},
		"an emission that is no list":                {"[seat-news]", "seat-news", "handlers.seat.freed.emits: must be a list"},
		"a rate per user of more than all":           {"pool: seats", "pool: seats\n    rate: { per_second: 4, per_user: 5, user: [seat_id] }", "rate.per_user: must be 0"},
		"a rate per user of nobody":                  {"pool: seats", "pool: seats\n    rate: { per_user: 5 }", "rate.user: must list names"},
		"a rate that is none":                        {"pool: seats", "pool: seats\n    rate: { per_second: -1 }", "rate.per_second: must be 0"},
		"a rate with an unknown key":                 {"pool: seats", "pool: seats\n    rate: { per_minute: 1 }", "rate"},
		"a bound that says not what to do":           {"pool: seats", "pool: seats\n    max_backlog: { messages: 9 }", "max_backlog: must have messages"},
		"a bound below its alert":                    {"pool: seats", "pool: seats\n    backlog_alert_above: 9\n    max_backlog: { messages: 9, on_full: alert }", "max_backlog.messages: must be above"},
		"a warning that comes after its alert":       {"pool: seats", "pool: seats\n    backlog_alert_above: 9\n    backlog_warn_above: 9", "backlog_warn_above: must be 0"},
		"a warning above dead letters' alert":        {"alert_above: 0", "alert_above: 0\n    warn_above: 1", "dead_letter.warn_above: must be 0 to"},
		"a warning of an older dead letter":          {`oldest_alert: "14400s"`, "oldest_alert: \"14400s\"\n    oldest_warn: \"14400s\"", "dead_letter.oldest_warn: must be 0s"},
		"a batch that cannot be gathered":            {"pool: seats", "pool: seats\n    batch: { size: 11, wait: \"0.02s\" }", "batch.size: must be 2 to concurrency"},
	} {
		refused(sentence, edited(t, "queues.yaml", test.old, test.replacement), test.told)
	}
	for sentence, test := range map[string]change{ // of a catalog that posts
		"an unknown key of the timeouts":   {`connect: "0.5s"`, `connect: "0.5s", read: "1s"`, "has a key that is not known"},
		"a timeout without its unit":       {`connect: "0.5s"`, `connect: "0.5"`, "timeouts and breaker.rest: must be durations in seconds"},
		"a total of ten minutes":           {`timeouts: { connect: "1s", total: "1s" }`, `timeouts: { connect: "1s", total: "600s" }`, "timeouts.total: must be below 600s"},
		"a negative concurrency":           {"concurrency: 4", "concurrency: -1", "concurrency: must be 0, which is no limit, to 1000"},
		"a concurrency of a thousand":      {"concurrency: 4", "concurrency: 1001", "concurrency: must be 0, which is no limit, to 1000"},
		"half a request at once":           {"concurrency: 4", "concurrency: 4.5", "must be whole numbers"},
		"a negative rate":                  {"2.5", "-2.5", "rate_per_second: must be 0, which is no limit, to 1000000"},
		"a rate beyond measure":            {"2.5", "1000001", "rate_per_second: must be 0, which is no limit, to 1000000"},
		"a burst without a rate":           {"    rate_per_second: 2.5\n", "", "burst: must be 1 to 1000000"},
		"a burst beyond measure":           {"burst: 5", "burst: 1000001", "burst: must be 1 to 1000000"},
		"a breaker of a thousand and one":  {"failures: 3", "failures: 1001", "breaker.failures: must be 0, which is any number, to 1000"},
		"a breaker that rests for days":    {`rest: "60s"`, `rest: "86401s"`, "breaker.rest: must be above 0s and at most 86400s"},
		"two questions about one path":     {"reminder: {", "another: { post: { target: post-office, path: /v1/letters } }\n      reminder: {", "reconcile: must be the same in every entry"},
		"a batch longer than its handlers": {`reminder: {`, `reminder: { timeout: "0.02s",`, "batch.wait: must be above 0s, at most 1s, and below the shortest timeout"},
	} {
		refused("posts: "+sentence, posting(t, test.old, test.replacement), test.told)
	}
}
