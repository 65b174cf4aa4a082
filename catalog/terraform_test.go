package catalog_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

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

// applied applies the catalog module to a folder, for the named queues: it has no provider and makes nothing, so an apply is
// its outputs and needs no network. It returns what prints an output, and what terraform printed.
func applied(t *testing.T, terraform, folder string, queues ...string) (output func(arguments ...string) []byte, printed []byte, err error) {
	t.Helper()
	folder, err = filepath.Abs(folder)
	require.NoError(t, err)
	// A copy: terraform keeps its state beside the configuration.
	module := t.TempDir()
	require.NoError(t, os.CopyFS(module, os.DirFS(filepath.Join("..", "terraform", "modules", "catalog"))))
	names, err := json.Marshal(append([]string{}, queues...))
	require.NoError(t, err)
	run := func(arguments ...string) ([]byte, error) {
		command := exec.CommandContext(t.Context(), terraform, arguments...)
		command.Dir = module
		command.Env = append(os.Environ(), "TF_VAR_directory="+folder, "TF_VAR_queues="+string(names), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		return command.CombinedOutput()
	}
	printed, err = run("apply", "-auto-approve", "-input=false", "-no-color")
	return func(arguments ...string) []byte {
		text, err := run(append([]string{"output"}, arguments...)...)
		require.NoError(t, err, "%s", text)
		return text
	}, printed, err
}

func TestTerraformRefusesWhatTheLoaderRefuses(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	_, printed, err := applied(t, terraform, posting(t))
	require.NoError(t, err, "%s", printed)
	eachMistake(t, func(t *testing.T, folder string, c change) {
		t.Helper()
		if c.Terraform == "" {
			return
		}
		_, printed, err := applied(t, terraform, folder)
		require.Error(t, err, "%s", printed)
		// Terraform breaks long lines.
		require.Contains(t, strings.Join(strings.Fields(string(printed)), " "), c.Terraform)
	})
}

// Terraform expands the catalog to the bytes that Go does, and grants what the doctor looks for: a topic that differs would
// be a grant that nobody misses, or one that nobody gives.
func TestTerraformExpandsAndGrantsWhatGoDoes(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	shipped := from(t, "")
	events, ok := shipped.HandledBy("points.credit")
	require.True(t, ok)
	some := []string{events.ID}
	for i := 0; i < len(some); i++ { // and those that it emits to, and these to
		q, _ := shipped.Queue(some[i])
		for _, h := range q.Handlers {
			for _, to := range shipped.Queues {
				if to.Enabled && !slices.Contains(some, to.ID) && (slices.Contains(h.Emits, to.ID) || slices.Contains(h.Emits, to.SharedTopic)) {
					some = append(some, to.ID)
				}
			}
		}
	}
	for name, test := range map[string]struct {
		folder string
		queues []string
	}{
		"the shipped catalog": {".", nil}, "the shipped catalog, narrowed": {".", some}, "a small one": {small, nil},
		"one of two pools, whose defaults, schedules and parts of a second differ": {crooked, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustOnly(t, from(t, test.folder), test.queues...)
			output, printed, err := applied(t, terraform, test.folder, test.queues...)
			require.NoError(t, err, "%s", printed)
			if test.queues == nil {
				want, err := c.JSON()
				require.NoError(t, err)
				var have bytes.Buffer
				require.NoError(t, json.Indent(&have, output("-raw", "json"), "", "  "))
				require.Equal(t, string(want), have.String())
				require.Equal(t, c.Hash(), string(output("-raw", "hash")))
			}
			var granted map[string][]string
			require.NoError(t, json.Unmarshal(output("-json", "publishers"), &granted))
			maps.DeleteFunc(granted, func(_ string, services []string) bool { return len(services) == 0 })
			for _, q := range c.Queues { // modules/queue gives each queue's worker its dead-letter topic
				if q.Enabled && !q.DeadLetter.Drop {
					granted[q.DeadLetter.Topic] = []string{catalog.WorkerOf(q.Pool)}
				}
			}
			require.NotEmpty(t, granted)
			require.Equal(t, granted, c.Publishers())
		})
	}
}
