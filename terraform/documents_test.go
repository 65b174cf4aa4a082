package terraform_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/console/api"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/serve"
)

// grantLine is what stands before a grant, once or more: who | on what | why.
var grantLine = regexp.MustCompile(`^# grant: ([^|]+) \| ([^|]+) \| ([^|]+)$`)

// grants is the README's table, made from the configuration.
func grants(t *testing.T) string {
	t.Helper()
	rows := map[string][]string{}
	for _, b := range blocks(t, "resource") {
		// A binding or a policy would take away what others have been granted.
		require.NotRegexp(t, `_iam_(binding|policy)$`, b.Labels[0], b.at())
		if !strings.HasSuffix(b.Labels[0], "_iam_member") {
			continue
		}
		role := roleOf(t, b)
		require.NotRegexp(t, `^roles/(owner|editor|viewer)$|[aA]dmin$`, role, b.at())
		if b.Labels[0] == "google_project_iam_member" { // no condition fits a metric
			require.True(t, b.child("condition").source("expression") != "" || role == "roles/monitoring.viewer",
				"%s: a grant on the project has a condition", b.at())
		}
		lines, granted := strings.Split(string(b.text), "\n"), false
		for at := b.DefRange().Start.Line - 2; at >= 0 && grantLine.MatchString(lines[at]); at-- {
			grant := grantLine.FindStringSubmatch(lines[at])
			rows[grant[1]] = append(rows[grant[1]], fmt.Sprintf("`%s` on %s: %s", role, grant[2], grant[3]))
			granted = true
		}
		require.True(t, granted, "%s: say before it: # grant: who | on what | why", b.at())
	}
	text := "| account | role, on what, and why |\n| --- | --- |\n"
	for _, account := range slices.Sorted(maps.Keys(rows)) {
		text += fmt.Sprintf("| %s | %s |\n", account,
			strings.Join(slices.Sorted(slices.Values(rows[account])), "<br>"))
	}
	return text
}

// roleOf is a grant's role, which is written out, or the permissions of a role of our own.
func roleOf(t *testing.T, grant block) string {
	t.Helper()
	if own, isOwn := strings.CutPrefix(grant.source("role"), "google_project_iam_custom_role."); isOwn {
		for _, b := range blocks(t, "resource") {
			if b.Labels[0] == "google_project_iam_custom_role" && strings.HasPrefix(own, b.Labels[1]+"[") {
				permissions := words(b.source("permissions"))
				require.NotEmpty(t, permissions, b.at())
				return strings.Join(permissions, "`, `")
			}
		}
	}
	role, err := strconv.Unquote(grant.source("role"))
	require.NoError(t, err, "%s: the role is written out, or one of our own", grant.at())
	return role
}

func TestTheReadmesTableOfGrantsIsTheConfigurations(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- grants: go test ./terraform -update -->\n\n", "\n<!-- end of grants -->"
	filetest.Part(t, grants(t), begin, end, "README.md")
}

// A pool whose worker would not start without a target's secret is a pool that reads it: which
// one that is the catalog says, and no name is typed here.
func TestTheCatalogAloneNamesTheHandlersThatPost(t *testing.T) {
	t.Parallel()
	c := catalogtest.Shipped()
	for _, file := range files(t, ".tf") {
		if strings.HasPrefix(file, "examples") { // of the shipped catalog
			continue
		}
		text := read(t, file)
		for name, target := range c.Targets {
			for _, word := range []string{name, target.URLVariable, target.SecretVariable} {
				require.NotContains(t, text, word, file)
			}
		}
	}
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	t.Parallel()
	alerts := 0
	for _, b := range blocks(t, "resource") {
		if b.Labels[0] == "google_monitoring_alert_policy" {
			alerts++
			require.Contains(t, b.child("documentation").source("content"),
				"${var.alerts.runbooks}/${each.value.runbook})", b.at())
		}
	}
	require.Equal(t, 1, alerts, "one resource for all, with one way to link a page")
	var named, written []string
	for _, file := range files(t, ".tf") {
		for _, runbook := range all(regexp.MustCompile(`runbook\s*=\s*"([^"]+)"`), read(t, file)) {
			page, section, _ := strings.Cut(runbook, "#")
			text := strings.ReplaceAll(strings.ToLower(read(t, filepath.Join("..", "docs", "runbooks",
				page))), " ", "-")
			require.True(t, section == "" || strings.Contains(text, "\n##-"+section+"\n"), runbook)
			named = append(named, page)
		}
	}
	for _, page := range runbooks(t) {
		written = append(written, filepath.Base(page))
	}
	slices.Sort(named)
	require.Equal(t, slices.Compact(named), written)
}

func TestTheTasksAndTheExpiryAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	expiring := words(local(t, "firestore.tf", "ttl_collections"))
	require.Contains(t, read(t, "firestore.tf"),
		`["`+webhook.BlocksCollection+`"] : "${name}.expire_at" => google_firestore_database.ingest.name`)
	expiring = append(expiring, webhook.BlocksCollection)
	require.Contains(t, expiring, api.RequestsCollection)
	require.ElementsMatch(t, expiring, tasks.Expiring,
		"what has a TTL is what the cleanup removes where there is none")
	require.Equal(t, tasks.Scheduled, words(local(t, "main.tf", "tasks")))
}

// The programs bound what they read at once by a quarter of their memory, and do not know
// how much that is.
func TestTheBodyBudgetIsAQuarterOfAnInstance(t *testing.T) {
	t.Parallel()
	found := all(regexp.MustCompile(`memory = "(\d+)Mi"`), read(t, "variables.tf"))
	require.Equal(t, slices.Repeat([]string{strconv.Itoa(4 * serve.DefaultBodyBudget >> 20)}, 2), found,
		"the webhook service's, and the workers'")
}

// lines are what the services log, by the packages that write it.
type lines struct {
	t        *testing.T
	packages []string
	seen     map[string]bool
}

func logged(t *testing.T) lines {
	t.Helper()
	packages := map[string]string{}
	for path, text := range sources(t) {
		if strings.Contains(text, "slog.") {
			packages[filepath.Dir(path)] += text
		}
	}
	return lines{t: t, packages: slices.Collect(maps.Values(packages)), seen: map[string]bool{}}
}

// require checks that a filter of log lines names a message that some package writes, and that
// the same package knows each field of the filter, and more fields.
func (l lines) require(filter string, fields []string) {
	l.t.Helper()
	said := regexp.MustCompile(`jsonPayload\.message=\(?("[^"]+"(?: OR "[^"]+")*)`).FindStringSubmatch(filter)
	require.NotNil(l.t, said, filter)
	for _, path := range all(regexp.MustCompile(`jsonPayload\.([a-z_.]+)`), filter) {
		fields = append(fields, strings.Split(path, ".")...)
	}
	var writing []string
	for _, message := range words(said[1]) {
		l.seen[message] = true
		others := func(text string) bool { return !strings.Contains(text, ", "+strconv.Quote(message)) }
		of := slices.DeleteFunc(slices.Clone(l.packages), others)
		require.NotEmpty(l.t, of, "nothing writes %q", message)
		writing = append(writing, of...)
	}
	for _, field := range fields {
		l.seen[field] = true
		knows := regexp.MustCompile(`"` + field + `[",]`).MatchString
		require.True(l.t, field == "message" || slices.ContainsFunc(writing, knows),
			"lines %s have no %s", said[1], field)
	}
}

// A metric made of lines that nobody writes would be silent, and so would its alert.
func TestTheMetricsOfLogLinesAreOfLinesThatAreWritten(t *testing.T) {
	t.Parallel()
	logged := logged(t)
	for line := range strings.Lines(local(t, filepath.Join("modules", "alerts", "metrics.tf"), "log_metrics")) {
		if filter := strings.ReplaceAll(line, `\"`, `"`); strings.Contains(filter, "filter =") {
			_, labels, _ := strings.Cut(filter, "labels")
			labels, _, _ = strings.Cut(labels, "]")
			logged.require(filter, words(labels))
		}
	}
	for _, name := range []string{
		"open dead letters", "task", "orphan", "delivery", "webhook", "queue", "open", "oldest_seconds",
		"done", "outcome",
	} {
		require.True(t, logged.seen[name], "the search finds %s", name)
	}
}

// What a runbook has somebody look for in the log is written there, and each metric that it names
// is Google's own or made here.
func TestTheRunbooksNameLinesAndMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	logged, commands, metrics := logged(t), 0, 0
	// the last is of Google's lines
	made := local(t, filepath.Join("modules", "alerts", "metrics.tf"), "log_metrics") + "\n secret-access ="
	for _, page := range runbooks(t) {
		text := read(t, page)
		require.NotRegexp(t, "`billhook_[a-z_]+|`\"message\"", text,
			"%s names what nobody collects, or a line without its command", page)
		require.Regexp(t, "(?m)^(gcloud|bin/billhook) ", text, "%s begins with a command", page)
		for _, metric := range regexp.MustCompile("`([a-z]+)\\.googleapis\\.com/([^`]+)`").
			FindAllStringSubmatch(text, -1) {
			name, ours := strings.CutPrefix(metric[2], "user/billhook-")
			require.Equal(t, metric[1] == "logging", ours, "%s: %s", page, metric[0])
			require.True(t, !ours || regexp.MustCompile(`\n\s+`+name+` +=`).MatchString(made), "%s: nothing makes %s",
				page, metric[0])
			metrics++
		}
		reads := regexp.MustCompile(`gcloud logging read [^']*'table\(([^)]*)\)' \\\n  '([^']+)'\n`).
			FindAllStringSubmatch(text, -1)
		require.Len(t, reads, strings.Count(text, "gcloud logging read"),
			"%s: a command that this test does not read", page)
		for _, read := range reads {
			// Google writes these lines
			if !strings.HasPrefix(read[2], `log_id("cloudaudit.googleapis.com/data_access")`) {
				logged.require(read[2], all(regexp.MustCompile(`jsonPayload\.([a-z_]+)`), read[1]))
				commands++
			}
		}
	}
	require.Greater(t, commands, 10)
	require.Positive(t, metrics)
}
