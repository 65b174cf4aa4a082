package catalog_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// Terraform grants what publishers.tf lists, and the doctor misses what Publishers lists. A topic that differs would
// be a grant that nobody misses, or one that nobody gives.
func TestTerraformGrantsWhatTheDoctorLooksFor(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	shipped, err := catalog.Load("")
	require.NoError(t, err)
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
		"the shipped catalog":                      {folder: "."},
		"the shipped catalog, narrowed":            {folder: ".", queues: some},
		"a small one":                              {folder: small},
		"one with two pools and no producers door": {folder: filepath.Join("testdata", "crooked")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := catalog.Load(test.folder)
			require.NoError(t, err)
			c, err = c.Only(test.queues)
			require.NoError(t, err)
			module := t.TempDir()
			require.NoError(t, os.CopyFS(module, os.DirFS(filepath.Join("..", "terraform", "modules", "catalog"))))
			folder, err := filepath.Abs(test.folder)
			require.NoError(t, err)
			queues, err := json.Marshal(append([]string{}, test.queues...))
			require.NoError(t, err)
			run := func(arguments ...string) []byte {
				command := exec.CommandContext(t.Context(), terraform, arguments...)
				command.Dir = module
				command.Env = append(os.Environ(), "TF_VAR_directory="+folder, "TF_VAR_queues="+string(queues),
					"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
				printed, err := command.CombinedOutput()
				require.NoError(t, err, "%s", printed)
				return printed
			}
			run("apply", "-auto-approve", "-input=false", "-no-color")
			var granted map[string][]string
			require.NoError(t, json.Unmarshal(run("output", "-json", "publishers"), &granted))
			for topic, services := range granted {
				if len(services) == 0 {
					delete(granted, topic)
				}
			}
			// modules/queue gives each queue's worker its dead-letter topic.
			for _, q := range c.Queues {
				if q.Enabled && !q.DeadLetter.Drop {
					granted[q.DeadLetter.Topic] = []string{catalog.WorkerOf(q.Pool)}
				}
			}
			require.NotEmpty(t, granted)
			require.Equal(t, granted, c.Publishers())
		})
	}
}
