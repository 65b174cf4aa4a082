package catalog_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Terraform is to see the very values that Go sees.
func TestTerraformReadsTheFilesAsGoDoes(t *testing.T) {
	t.Parallel()
	terraform := terraformBinary(t)
	for _, file := range []string{"queues.yaml", "topics.yaml", "products.yaml", "sources.yaml", "targets.yaml"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var read any
			require.NoError(t, yaml.Unmarshal(data, &read))
			want, err := json.Marshal(read)
			require.NoError(t, err)

			// The console evaluates one expression; it needs no provider and no network.
			config := t.TempDir()
			require.NoError(t, os.WriteFile(config+"/main.tf", []byte(`variable "text" { type = string }`), 0o600))
			console := exec.CommandContext(t.Context(), terraform, "console")
			console.Dir = config
			console.Env = append(os.Environ(), "TF_VAR_text="+string(data), "CHECKPOINT_DISABLE=1")
			input, err := console.StdinPipe()
			require.NoError(t, err)
			_, err = input.Write([]byte("jsonencode(yamldecode(var.text))\n"))
			require.NoError(t, err)
			require.NoError(t, input.Close())
			output, err := console.Output()
			require.NoError(t, err)

			var quoted string
			require.NoError(t, json.Unmarshal(output, &quoted))
			require.JSONEq(t, string(want), quoted)
		})
	}
}
