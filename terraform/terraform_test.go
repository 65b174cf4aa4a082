// Package terraform_test holds what must be true of the configuration. What needs no
// provider always runs; what does says that it was left out where none can be had.
package terraform_test

import (
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"

	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
)

func TestEveryFileIsFormatted(t *testing.T) {
	t.Parallel()
	emulatortest.NeedsTerraform(t)
	output, err := emulatortest.Module{Folder: "."}.Run(t.Context(), "fmt", "-check", "-diff", "-recursive")
	require.NoError(t, err, output)
}

func files(t *testing.T, endings ...string) []string {
	t.Helper()
	found := filetest.Tree(t, ".", func(path string) bool {
		return slices.Contains(endings, filepath.Ext(path)) && path != ".terraform.lock.hcl" &&
			!strings.Contains(path, "testdata")
	})
	require.NotEmpty(t, found)
	return slices.Sorted(maps.Keys(found))
}

func read(t *testing.T, file string) string { return filetest.Read(t, file) }

func runbooks(t *testing.T) []string {
	t.Helper()
	pages := filetest.Must(filepath.Glob(filepath.Join("..", "docs", "runbooks", "*.md")))(t)
	require.NotEmpty(t, pages)
	return pages
}

func TestPlansAreWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	root := emulatortest.Terraform(t, "..", "", files(t, ".tf", ".hcl", ".tfvars")...).Folder
	for module, needsProvider := range map[string]bool{
		".": true, "emulator": true, "modules/queue": true, "modules/service": true, "modules/catalog": false,
		"modules/alerts": false,
	} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(root, module)
			run := emulatortest.Module{
				Folder: folder, Data: filepath.Join(folder, ".terraform"), Environment: []string{"WAIT_FOR_GRANTS=true"},
			}.Run
			output, err := run(t.Context(), "init", "-input=false", "-no-color")
			if needsProvider && errors.Is(err, emulatortest.ErrNoProvider) {
				t.Skip(err)
			}
			require.NoError(t, err, output)
			output, err = run(t.Context(), "validate", "-no-color")
			require.NoError(t, err, output)
			tests, err := filepath.Glob(filepath.Join(folder, "tests", "*.tftest.hcl"))
			require.NoError(t, err)
			require.Equal(t, module == "emulator", len(tests) == 0, "the emulator's test is an apply")
			if module == "." {
				output, err = run(t.Context(), "init", "-input=false", "-no-color", "-test-directory=examples")
				require.NoError(t, err, output)
				tests = append(tests, filepath.Join(folder, "examples", "plan.tftest.hcl"))
			}
			for _, file := range tests { // each by itself, beside the others
				in := filepath.Base(filepath.Dir(file))
				t.Run(in+"/"+filepath.Base(file), func(t *testing.T) {
					t.Parallel()
					output, err := run(t.Context(), "test", "-no-color", "-test-directory="+in,
						"-filter="+filepath.Join(in, filepath.Base(file)))
					require.NoError(t, err, output)
					require.Regexp(t, `[1-9]\d* passed, 0 failed`, output)
				})
			}
		})
	}
}

type block struct {
	*hclsyntax.Block
	file string
	text []byte
}

func (b block) at() string { return b.file + ": " + b.Type + " " + strings.Join(b.Labels, ".") }

// source is the text of an attribute, as it was written, or nothing.
func (b block) source(name string) string {
	attribute, ok := b.Body.Attributes[name]
	if !ok {
		return ""
	}
	return string(attribute.Expr.Range().SliceBytes(b.text))
}

// child is the first nested block of a type; without one it has nothing.
func (b block) child(kind string) block {
	for _, nested := range b.Body.Blocks {
		if nested.Type == kind {
			return block{nested, b.file, b.text}
		}
	}
	return block{&hclsyntax.Block{Body: &hclsyntax.Body{}}, b.file, b.text}
}

var (
	parsing sync.Once
	parsed  []block // of all files
)

func blocks(t *testing.T, kinds ...string) []block {
	t.Helper()
	parsing.Do(func() {
		for _, file := range files(t, ".tf") {
			text := []byte(read(t, file))
			tree, problems := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
			require.False(t, problems.HasErrors(), problems.Error())
			for _, b := range tree.Body.(*hclsyntax.Body).Blocks {
				parsed = append(parsed, block{b, file, text})
			}
		}
	})
	found := slices.DeleteFunc(slices.Clone(parsed), func(b block) bool {
		return !slices.Contains(kinds, b.Type)
	})
	require.NotEmpty(t, found)
	return found
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

var quoted = regexp.MustCompile(`"([^"]+)"`)

func words(text string) []string { return all(quoted, text) }

func all(of *regexp.Regexp, text string) []string {
	return filetest.Map(of.FindAllStringSubmatch(text, -1), func(match []string) string { return match[1] })
}

func TestOnlyGooglesProviderIsUsedInAPinnedRange(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "terraform") {
		require.NotEmpty(t, b.source("required_version"), b.at())
		if providers := b.child("required_providers"); len(providers.Body.Attributes) > 0 {
			require.Len(t, providers.Body.Attributes, 1, b.at())
			require.Regexp(t, `"hashicorp/google"(.|\n)*version = ">= \d+\.\d+, < \d+\.0"`,
				providers.source("google"), b.at())
		}
	}
}

func TestEveryVariableAndOutputIsDescribedAndTyped(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "variable", "output") {
		require.NotEmpty(t, b.source("description"), b.at())
		if b.Type == "variable" {
			require.NotContains(t, []string{"", "any"}, b.source("type"), b.at())
		}
	}
}

// No secret's value is in the state, no subscription expires, what holds messages is protected by one choice
// for each queue, and a grant on a topic or subscription is made anew with it: it goes with it, and terraform
// would not notice.
func TestResourcesHoldWhatTheyAreTrustedWith(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "resource", "data") {
		kind := b.Labels[0]
		require.True(t, strings.HasPrefix(kind, "google_") || kind == "terraform_data", b.at())
		require.NotEqual(t, "google_service_account_key", kind, b.at())
		if strings.Contains(kind, "secret_version") {
			require.Equal(t, []string{"data", "false"}, []string{b.Type, b.source("fetch_secret_data")}, b.at())
		}
		if kind == "google_pubsub_subscription" {
			require.Equal(t, `""`, b.child("expiration_policy").source("ttl"), b.at())
		}
		if (kind == "google_pubsub_topic" || kind == "google_pubsub_subscription") &&
			filepath.Dir(b.file) != "emulator" {
			want := "local.deletion_policy"
			if b.file == "queues.tf" {
				want = `local.discarded_topics[each.key] ? "DELETE" : "PREVENT"`
			}
			require.Equal(t, want, b.source("deletion_policy"), b.at())
		}
		if strings.HasPrefix(b.file, "modules") && strings.HasSuffix(kind, "_iam_member") {
			require.NotEmpty(t, b.child("lifecycle").source("replace_triggered_by"), b.at())
		}
	}
}

// The variable firestore.database may be empty. What is called by it directly would have no name.
func TestTheDatabaseIsCalledByTheNameThatWasChosen(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "resource", "module", "locals", "data", "output") {
		said := regexp.MustCompile(`\bvar\.firestore\.database\b`).FindString(string(b.Range().SliceBytes(b.text)))
		if filepath.Dir(b.file) == "." && (b.Type != "locals" || b.file != "main.tf") { // main.tf chooses
			require.Empty(t, said, "%s: local.database_id has the name that was chosen", b.at())
		}
	}
}

// A queue's push subscription goes before all that its queue works with: where Terraform refuses to delete
// it, that stays. And it waits for its worker, and for whom its pushes are signed by.
func TestASubscriptionComesLastAndGoesFirst(t *testing.T) {
	t.Parallel()
	waits := map[string]string{}
	for _, b := range blocks(t, "resource", "module") {
		waits[b.Labels[len(b.Labels)-1]] = b.source("depends_on")
	}
	for _, name := range []string{
		"publishes", "publishes_dead_letters", "dead_letters",
	} {
		require.Regexp(t, `\.`+name+`\b`, waits["push"])
	}
	for _, name := range []string{`module\.worker`, "agent_signs_as_push", "publishes"} {
		require.Regexp(t, `\b`+name+`\b`, waits["queue"])
	}
	require.NotContains(t, waits["webhook"], "module.queue",
		"a subscription could not be replaced under its name")
}
