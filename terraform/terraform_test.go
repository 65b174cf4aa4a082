// Package terraform_test holds what must be true of the configuration. What needs no
// provider always runs; what does says that it was left out where none can be had.
package terraform_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/twophase"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/tasks"
)

var update = flag.Bool("update", false, "write the README's table of grants anew")

// binary is the path of terraform; without it the test is left out, but not in CI.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it starts Terraform")
	}
	path, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
	require.NoError(t, err, "CI leaves nothing out")
	return path
}

func run(t *testing.T, folder string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary(t), arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestEveryFileIsFormatted(t *testing.T) {
	t.Parallel()
	output, err := run(t, ".", "fmt", "-check", "-diff", "-recursive")
	require.NoError(t, err, output)
}

// copied is the configuration and the catalog in a folder of the test's: terraform keeps
// what it has downloaded beside its files.
func copied(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "catalog"), os.DirFS(filepath.Join("..", "catalog"))))
	for _, file := range files(t, ".tf", ".hcl", ".tfvars") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		to := filepath.Join(root, "terraform", file)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	return filepath.Join(root, "terraform")
}

// files lists the files of the configuration by their endings.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".terraform" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if err == nil && slices.Contains(endings, filepath.Ext(path)) && entry.Name() != ".terraform.lock.hcl" {
			found = append(found, path)
		}
		return err
	}))
	require.NotEmpty(t, found)
	return found
}

func TestTheOwnTestsOfModulesWithoutAProviderPass(t *testing.T) {
	t.Parallel()
	root := copied(t)
	for _, module := range []string{"catalog", "alerts"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(root, "modules", module)
			output, err := run(t, folder, "init", "-input=false", "-no-color")
			require.NoError(t, err, output)
			output, err = run(t, folder, "test", "-no-color")
			require.NoError(t, err, output)
			require.Regexp(t, `[1-9]\d* passed, 0 failed`, output)
		})
	}
}

func TestPlansAreWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	root := copied(t)
	for name, folder := range map[string]string{
		"the whole": ".", "a queue": filepath.Join("modules", "queue"), "a service": filepath.Join("modules", "service"), "the front": filepath.Join("modules", "front"), "the emulator": "emulator",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := run(t, filepath.Join(root, folder), "init", "-input=false", "-no-color")
			if err != nil && strings.Contains(output, "Failed to query available provider packages") {
				t.Skip("left out: the provider hashicorp/google cannot be had here")
			}
			require.NoError(t, err, output)
			output, err = run(t, filepath.Join(root, folder), "validate", "-no-color")
			require.NoError(t, err, output)
			if folder == "emulator" { // its test is an apply
				return
			}
			// Each file by itself, beside the others.
			tests, err := filepath.Glob(filepath.Join(root, folder, "tests", "*.tftest.hcl"))
			require.NoError(t, err)
			require.NotEmpty(t, tests)
			for _, file := range tests {
				t.Run(filepath.Base(file), func(t *testing.T) {
					t.Parallel()
					output, err := run(t, filepath.Join(root, folder), "test", "-no-color", "-filter="+filepath.Join("tests", filepath.Base(file)))
					require.NoError(t, err, output)
					require.Regexp(t, `[1-9]\d* passed, 0 failed`, output)
				})
			}
		})
	}
}

// block is a block of a file, such as a resource.
type block struct {
	*hclsyntax.Block
	file string
	text []byte
}

// at is the block's address.
func (b block) at() string { return b.file + ": " + b.Type + " " + strings.Join(b.Labels, ".") }

// source is the text of an attribute, as it was written, or nothing.
func (b block) source(name string) string {
	attribute, ok := b.Body.Attributes[name]
	if !ok {
		return ""
	}
	return string(attribute.Expr.Range().SliceBytes(b.text))
}

// child is the first nested block of a type.
func (b block) child(kind string) (block, bool) {
	for _, nested := range b.Body.Blocks {
		if nested.Type == kind {
			return block{nested, b.file, b.text}, true
		}
	}
	return block{}, false
}

// blocks reads every block of the configuration of one type.
func blocks(t *testing.T, kind string) []block {
	t.Helper()
	var found []block
	for _, file := range files(t, ".tf") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		parsed, problems := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
		require.False(t, problems.HasErrors(), problems.Error())
		body, ok := parsed.Body.(*hclsyntax.Body)
		require.True(t, ok)
		for _, b := range body.Blocks {
			if b.Type == kind {
				found = append(found, block{b, file, text})
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

func TestOnlyGooglesProviderIsUsedInAPinnedRange(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "terraform") {
		require.NotEmpty(t, b.source("required_version"), b.at())
		providers, ok := b.child("required_providers")
		if !ok {
			continue
		}
		require.Len(t, providers.Body.Attributes, 1, b.at())
		require.Contains(t, providers.source("google"), `"hashicorp/google"`, b.at())
		require.Regexp(t, `version = ">= \d+\.\d+, < \d+\.0"`, providers.source("google"), b.at())
	}
	for _, b := range append(blocks(t, "resource"), blocks(t, "data")...) {
		require.True(t, strings.HasPrefix(b.Labels[0], "google_"), b.at())
	}
}

func TestNoSecretsValueIsInTheState(t *testing.T) {
	t.Parallel()
	for _, b := range append(blocks(t, "resource"), blocks(t, "data")...) {
		if b.Type == "data" && b.Labels[0] == "google_secret_manager_secret_version" {
			require.Equal(t, "false", b.source("fetch_secret_data"), b.at())
			continue
		}
		require.NotContains(t, b.Labels[0], "secret_version", b.at())
		require.NotEqual(t, "google_service_account_key", b.Labels[0], b.at())
	}
}

func TestNoSubscriptionExpires(t *testing.T) {
	t.Parallel()
	count := 0
	for _, b := range blocks(t, "resource") {
		if b.Labels[0] != "google_pubsub_subscription" {
			continue
		}
		count++
		policy, ok := b.child("expiration_policy")
		require.True(t, ok, b.at())
		require.Equal(t, `""`, policy.source("ttl"), b.at())
	}
	require.Equal(t, 3, count)
}

func TestEveryVariableAndOutputIsDescribedAndTyped(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "variable") {
		require.NotEmpty(t, b.source("description"), b.at())
		require.NotEmpty(t, b.source("type"), b.at())
		require.NotEqual(t, "any", b.source("type"), b.at())
	}
	for _, b := range blocks(t, "output") {
		require.NotEmpty(t, b.source("description"), b.at())
	}
}

// grantLine is what stands before a grant, once or more: who | on what | why.
var grantLine = regexp.MustCompile(`^# grant: ([^|]+) \| ([^|]+) \| ([^|]+)$`)

// grants is the README's table, made from the configuration.
func grants(t *testing.T) string {
	t.Helper()
	var rows []string
	for _, b := range blocks(t, "resource") {
		// A binding or a policy would take away what others have been granted.
		require.NotRegexp(t, `_iam_(binding|policy)$`, b.Labels[0], b.at())
		if !strings.HasSuffix(b.Labels[0], "_iam_member") {
			continue
		}
		lines := strings.Split(string(b.text), "\n")
		var said [][]string
		for at := b.DefRange().Start.Line - 2; at >= 0 && grantLine.MatchString(lines[at]); at-- {
			said = append(said, grantLine.FindStringSubmatch(lines[at]))
		}
		require.NotEmpty(t, said, "%s: say before it: # grant: who | on what | why", b.at())
		role := roleOf(t, b)
		require.NotRegexp(t, `^roles/(owner|editor|viewer)$|[aA]dmin$`, role, b.at())
		if b.Labels[0] == "google_project_iam_member" {
			_, conditioned := b.child("condition")
			// No condition fits a metric.
			require.True(t, conditioned || role == "roles/monitoring.viewer", "%s: a grant on the project has a condition", b.at())
		}
		for _, grant := range said {
			rows = append(rows, fmt.Sprintf("| %s | `%s` | %s | %s |", grant[1], role, grant[2], grant[3]))
		}
	}
	slices.Sort(rows)
	return "| account | role | on | why |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
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
		require.Fail(t, "no such role", grant.at())
	}
	role, err := strconv.Unquote(grant.source("role"))
	require.NoError(t, err, "%s: the role is written out", grant.at())
	return role
}

func TestTheReadmesTableOfGrantsIsTheConfigurations(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- grants: go test ./terraform -update -->\n\n", "\n<!-- end of grants -->"
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := grants(t)
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(before+begin+want+end+after), 0o600))
		return
	}
	require.Equal(t, want, table, "go test ./terraform -update writes it anew")
}

// TestTheCatalogModuleAloneNamesThePublishers: its own tests hold it against what the programs
// do, and need no provider.
func TestTheCatalogModuleAloneNamesThePublishers(t *testing.T) {
	t.Parallel()
	members := map[string][2]string{}
	for _, b := range blocks(t, "resource") {
		if strings.HasSuffix(b.Labels[0], "_iam_member") && b.source("role") == `"roles/pubsub.publisher"` {
			members[b.Labels[1]] = [2]string{b.source("for_each") + b.source("count"), b.source("member")}
		}
	}
	tells := members["worker_tells_others"]
	shares := members["publishes_to_several_queues"]
	require.Contains(t, tells[0], "in module.catalog.publishers[topic]")
	require.Contains(t, shares[0], "in module.catalog.publishers[topic]")
	require.Equal(t, map[string][2]string{
		"agent_publishes_dead_letters": {"length(local.agent_grants)", "local.agent_grants[count.index]"},
		"publishes":                    {"var.queue.shared ? {} : var.publishers", "each.value"},
		"publishes_dead_letters":       {"var.queue.dead_letter.drop ? {} : var.dead_letter_publishers", "each.value"},
		"publishes_to_several_queues":  {shares[0], "local.members[each.value.name]"},
		"worker_tells_others":          {tells[0], "local.members[each.value.name]"},
	}, members)
	for _, b := range blocks(t, "module") {
		if b.Labels[0] == "queue" && b.file == "queues.tf" {
			require.Equal(t, "{ for name in module.catalog.publishers[module.catalog.queues[each.key].topic] : name => local.members[name] }", b.source("publishers"))
			require.Equal(t, "{ for pool, account in google_service_account.worker : \"worker\" => account.member if pool == each.value.pool && each.value.enabled }", b.source("dead_letter_publishers"))
			return
		}
	}
	require.Fail(t, "queues.tf makes queues")
}

// A pool whose worker would not start without a target's secret is a pool that reads it: which
// one that is the catalog says, and no name is typed here.
func TestTheCatalogAloneNamesTheHandlersThatPost(t *testing.T) {
	t.Parallel()
	require.Contains(t, local(t, "secrets.tf", "worker_secrets"), "p.secret_variables")
	c, err := catalog.Load("")
	require.NoError(t, err)
	for name, target := range c.Targets {
		for _, file := range files(t, ".tf") {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, word := range []string{name, target.URLVariable, target.SecretVariable} {
				require.NotContains(t, string(text), word, file)
			}
		}
	}
}

// A grant on a topic or subscription goes with it, and terraform would not notice.
func TestGrantsOnQueuesAreMadeAnewWithThem(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "resource") {
		if !strings.HasPrefix(b.file, "modules") || !strings.HasSuffix(b.Labels[0], "_iam_member") {
			continue
		}
		lifecycle, ok := b.child("lifecycle")
		require.True(t, ok, b.at())
		require.NotEmpty(t, lifecycle.source("replace_triggered_by"), b.at())
	}
}

var (
	runbookName = regexp.MustCompile(`runbook\s*=\s*"([^"]+)"`)
	// auditLog begins the filters of lines that Google writes.
	auditLog    = `log_id("cloudaudit.googleapis.com/data_access")`
	runbookLink = "${var.runbooks}/${each.value.runbook}.md"
)

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	t.Parallel()
	alerts := 0
	for _, b := range blocks(t, "resource") {
		if b.Labels[0] == "google_monitoring_alert_policy" {
			alerts++
			documentation, ok := b.child("documentation")
			require.True(t, ok, b.at())
			require.Contains(t, documentation.source("content"), runbookLink, b.at())
		}
	}
	require.Equal(t, 1, alerts, "one resource for all, with one way to link a page")
	var named []string
	for _, file := range files(t, ".tf") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range runbookName.FindAllStringSubmatch(string(text), -1) {
			named = append(named, match[1])
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	require.NotEmpty(t, named)
	pages, err := filepath.Glob(filepath.Join("..", "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	var written []string
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); name != "README" {
			written = append(written, name)
		}
	}
	require.Equal(t, named, written)
}

// A metric made of lines that nobody writes would be silent, and so would its alert.
func TestTheMetricsOfLogLinesAreOfLinesThatAreWritten(t *testing.T) {
	t.Parallel()
	written, seen := lineWriters(t), map[string]bool{}
	for line := range strings.Lines(local(t, filepath.Join("modules", "alerts", "metrics.tf"), "log_metrics")) {
		filter := strings.ReplaceAll(line, `\"`, `"`)
		if !strings.Contains(filter, "filter =") {
			continue
		}
		_, labels, _ := strings.Cut(filter, "labels")
		labels, _, _ = strings.Cut(labels, "]")
		requireWritten(t, written, seen, filter, words(labels))
	}
	for _, name := range []string{"open dead letters", "task", "orphan", "delivery", "webhook", "queue", "open", "oldest_seconds", "done", "outcome"} {
		require.True(t, seen[name], "the search finds %s", name)
	}
}

// What a runbook has somebody look for in the log is written there, and each metric that it names
// is Google's own or made here.
func TestTheRunbooksNameLinesAndMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	written, seen := lineWriters(t), map[string]bool{}
	made := local(t, filepath.Join("modules", "alerts", "metrics.tf"), "log_metrics")
	pages, err := filepath.Glob(filepath.Join("..", "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	var alone []string // metrics that are made of other lines than the services'
	for _, b := range blocks(t, "resource") {
		if name, own := strings.CutPrefix(b.source("name"), `"${local.name}-`); own && b.Labels[0] == "google_logging_metric" {
			alone = append(alone, strings.TrimSuffix(name, `"`))
		}
	}
	require.Equal(t, []string{"secret-access"}, alone)
	commands := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(content)
		require.NotRegexp(t, "`billhook_[a-z_]+|`\"message\"", text, "%s names what nobody collects, or a line without its command", page)
		for _, metric := range regexp.MustCompile("`([a-z]+)\\.googleapis\\.com/([^`]+)`").FindAllStringSubmatch(text, -1) {
			name, ours := strings.CutPrefix(metric[2], "user/billhook-")
			require.Equal(t, metric[1] == "logging", ours, "%s: %s", page, metric[0])
			require.True(t, !ours || slices.Contains(alone, name) || regexp.MustCompile(`\n\s+`+name+` +=`).MatchString(made), "%s: nothing makes %s", page, metric[0])
			seen[metric[0]] = true
		}
		reads := regexp.MustCompile(`gcloud logging read [^']*'table\(([^)]*)\)' \\\n  '([^']+)'\n`).FindAllStringSubmatch(text, -1)
		require.Len(t, reads, strings.Count(text, "gcloud logging read"), "%s: a command that this test does not read", page)
		for _, read := range reads {
			if strings.HasPrefix(read[2], auditLog) { // Google writes these lines
				continue
			}
			requireWritten(t, written, seen, read[2], regexp.MustCompile(`jsonPayload\.([a-z_]+)`).FindAllString(read[1], -1))
			commands++
		}
		require.Regexp(t, "(?m)^(gcloud|bin/billhook) ", text, "%s begins with a command", page)
	}
	require.Greater(t, commands, 15)
	require.True(t, seen["`logging.googleapis.com/user/billhook-deliveries`"])
}

// lineWriters are the source files that write log lines.
func lineWriters(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "internal"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "LogAttrs(") {
			files = append(files, string(text))
		}
		return err
	}))
	return files
}

// requireWritten checks that a filter of log lines names a message that some file writes, and that
// the same file knows each field of the filter, and more fields.
func requireWritten(t *testing.T, files []string, seen map[string]bool, filter string, fields []string) {
	t.Helper()
	said := regexp.MustCompile(`jsonPayload\.message=\(?("[^"]+"(?: OR "[^"]+")*)`).FindStringSubmatch(filter)
	require.NotNil(t, said, filter)
	for _, named := range regexp.MustCompile(`jsonPayload\.([a-z_]+)(?:\.([a-z_]+))?`).FindAllStringSubmatch(filter, -1) {
		fields = append(fields, named[1])
		if named[2] != "" {
			fields = append(fields, named[2])
		}
	}
	for _, message := range words(said[1]) {
		seen[message] = true
		require.True(t, slices.ContainsFunc(files, func(text string) bool { return strings.Contains(text, ", "+strconv.Quote(message)) }), "nothing writes %q", message)
	}
	for _, field := range fields {
		if field = strings.TrimPrefix(field, "jsonPayload."); field == "message" {
			continue
		}
		seen[field] = true
		written := slices.ContainsFunc(words(said[1]), func(message string) bool {
			return slices.ContainsFunc(files, func(text string) bool {
				return strings.Contains(text, ", "+strconv.Quote(message)) && regexp.MustCompile(`\b`+field+`\b`).MatchString(text)
			})
		})
		require.True(t, written, "lines %s have no %s", said[1], field)
	}
}

// local is the text of a local value of a file.
func local(t *testing.T, file, name string) string {
	t.Helper()
	for _, b := range blocks(t, "locals") {
		if b.file == file && b.source(name) != "" {
			return b.source(name)
		}
	}
	require.Fail(t, "no local value", "%s: %s", file, name)
	return ""
}

// What a document has somebody take from an output must be one.
func TestTheDocumentsNameOutputsThatThereAre(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, b := range blocks(t, "output") {
		there[b.Labels[0]] = there[b.Labels[0]] || b.file == "outputs.tf"
	}
	pages, err := filepath.Glob(filepath.Join("..", "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	seen := 0
	for _, page := range append(pages, "README.md", filepath.Join("..", "docs", "deploying.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile("(?:=terraform output(?: -raw| -json)?|\\(out -raw|\\(out -json|\\(pools) ([a-z_]+)|output `([a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
			require.True(t, there[match[1]+match[2]], "%s names the output %s%s", page, match[1], match[2])
			seen++
		}
	}
	require.Greater(t, seen, 8)
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

func words(text string) []string {
	var found []string
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

func TestTheTasksAndTheExpiryAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{dedupe.Collection, deadletter.Collection, twophase.Collection, lane.Delayed.Lanes(), rates.Hours, rates.Days}, words(local(t, "firestore.tf", "ttl_collections")))
	for _, b := range blocks(t, "resource") {
		if b.Labels[1] == "door_ttl" {
			require.Equal(t, strconv.Quote(webhook.BlocksCollection), b.source("collection"))
		}
	}
	called := local(t, "main.tf", "tasks")
	for _, task := range tasks.Names {
		require.Equal(t, slices.Contains(tasks.Scheduled, task), regexp.MustCompile(`\b`+task+`\s*=`).MatchString(called), task)
	}
}

// TestNoQueryNeedsAnIndexThatIsSwitchedOff collects every field name that stands as a key, or as
// the field of what is due, in a file that queries: more than are queried, never fewer.
func TestNoQueryNeedsAnIndexThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	queried := queriedFields(t)
	for _, field := range []string{"queue", "status", "event_id", "correlation_id", "tenant", "lease_until", "state", "reason", "ordering_key", "due_at", "oldest_at", "progress", "account"} {
		require.Contains(t, queried, field, "the search for queried fields finds what is queried")
	}
	unindexed := words(local(t, "firestore.tf", "unindexed"))
	require.Greater(t, len(unindexed), 5)
	for _, field := range unindexed {
		require.NotContains(t, queried, field)
	}
}

// inspectQueries visits every node of the files that query.
func inspectQueries(t *testing.T, visit func(ast.Node)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
			return err
		}
		text, err := os.ReadFile(path)
		// The second makes the conditions of queries that another file asks.
		if err != nil || (!strings.Contains(string(text), "store.Query{") && !strings.Contains(string(text), "equal := map[string]any{}")) {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "fields" {
				return false // what a document is written with
			}
			visit(n)
			return true
		})
		return nil
	}))
}

// text is the value of a string that is written out, or nothing.
func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(basic.Value)
	require.NoError(t, err)
	return value
}

// keysOf are the keys of a map that is written out.
func keysOf(t *testing.T, m *ast.CompositeLit) []string {
	t.Helper()
	var keys []string
	for _, element := range m.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			keys = append(keys, text(t, pair.Key))
		}
	}
	return keys
}

// queriedFields are the fields that single-field indexes are asked by: of a query that needs a composite
// index the time is not.
func queriedFields(t *testing.T) []string {
	t.Helper()
	composite := words(local(t, "firestore.tf", "composite"))
	var found []string
	inspectQueries(t, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if kind, isMap := n.Type.(*ast.MapType); isMap && kind != nil {
				found = append(found, keysOf(t, n)...)
			}
			for _, element := range n.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Field" && !slices.Contains(composite, text(t, pair.Value)) {
						found = append(found, text(t, pair.Value))
					}
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if index, ok := left.(*ast.IndexExpr); ok {
					found = append(found, text(t, index.Index))
				}
			}
		}
	})
	return found
}
