package terraform_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// questions is a folder with the root's variables and the catalog that they are checked against, and no more:
// a plan of it needs no provider, and takes a moment.
func questions(t *testing.T) string {
	t.Helper()
	root := copied(t)
	folder := filepath.Join(root, "asked")
	require.NoError(t, os.Mkdir(folder, 0o700))
	for _, b := range blocks(t, "module") {
		if b.file == "main.tf" && b.Labels[0] == "catalog" {
			text := string(b.Range().SliceBytes(b.text))
			text = strings.ReplaceAll(text, `"./modules/`, `"../modules/`)
			text = strings.ReplaceAll(text, `${path.module}/../catalog`, `${path.module}/../../catalog`)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "main.tf"), []byte(text), 0o600))
		}
	}
	variables, err := os.ReadFile(filepath.Join(root, "variables.tf"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "variables.tf"), variables, 0o600))
	output, err := run(t, folder, "init", "-input=false", "-no-color")
	require.NoError(t, err, output)
	return folder
}

const digest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// inputs are the variables of a plan that nothing is wrong with.
func inputs() map[string]any {
	return map[string]any{
		"project_id": "example", "region": "europe-west3", "firestore": map[string]any{"location": "eur3"},
		// A small catalog is read faster.
		"catalog_dir": "../../catalog/testdata/crooked", "tasks_pool": "letters", "target_urls": map[string]string{"POST_OFFICE_URL": "https://post-office.example"},
		"images": map[string]string{"webhook": "example.com/webhook" + digest, "worker": "example.com/worker" + digest},
	}
}

func TestTheVariablesRefuse(t *testing.T) {
	t.Parallel()
	folder := questions(t)
	for name, refused := range map[string]struct {
		with map[string]any
		says string
	}{
		"nothing that is right":            {map[string]any{}, ""},
		"a first apply":                    {map[string]any{"images": nil, "bootstrap": true}, ""},
		"forgotten images":                 {map[string]any{"images": nil}, "images is missing"},
		"a first apply of what runs":       {map[string]any{"bootstrap": true}, "bootstrap is for the first apply"},
		"an image that may be moved":       {map[string]any{"images": map[string]string{"webhook": "example.com/webhook:latest", "worker": "example.com/worker:latest"}}, "by their digest"},
		"latest as a version":              {map[string]any{"secret_versions": map[string]int{"OPS_TOKEN": 0}}, "at least 1"},
		"a target without an address":      {map[string]any{"target_urls": map[string]string{}}, "does not name"},
		"a target in plain text":           {map[string]any{"target_urls": map[string]string{"POST_OFFICE_URL": "http://post-office.example"}}, "must be https://host"},
		"an address that nobody reads":     {map[string]any{"target_urls": map[string]string{"POST_OFFICE_URL": "https://post-office.example", "POST_OFFICES_URL": "https://post-office.example"}}, "no worker reads"},
		"operators without an audience":    {map[string]any{"ops": map[string]any{"audience": "", "allow": []string{"ada@example.com"}}}, "both audience and allow"},
		"an operator without an address":   {map[string]any{"ops": map[string]any{"audience": "https://ops.example", "allow": []string{"ada"}}}, "e-mail addresses"},
		"an ingress that there is not":     {map[string]any{"worker_ingress": "INTERNAL"}, "worker_ingress must be"},
		"more instances least than most":   {map[string]any{"webhook_scaling": map[string]int{"min": 5, "max": 1}}, "0 <= min <= max"},
		"two answers about idle instances": {map[string]any{"catalog_min_instances": true, "scale_to_zero": true}, "choose one"},
		"a pause of what does not run":     {map[string]any{"paused_queues": []string{"lost"}}, "no queue that runs: lost"},
		"an installation with a capital":   {map[string]any{"installation": "North"}, "installation must be"},
		"a name that is too long":          {map[string]any{"name": "an-installation-of-ours"}, "name must be 3 to 12"},
		"a canary of nothing":              {map[string]any{"canary": map[string]any{"worker": map[string]any{"image": "example.com/worker" + digest, "percent": 10}}}, "canary names no service: worker"},
		"a canary for everybody":           {map[string]any{"canary": map[string]any{"webhook": map[string]any{"image": "example.com/webhook" + digest, "percent": 100}}}, "0 to 99 whole percent"},
		"a redeployment of nothing":        {map[string]any{"redeploy": map[string]string{"worker": "today"}}, "redeploy names no service: worker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := inputs()
			maps.Copy(all, refused.with)
			file := filepath.Join(t.TempDir(), "answers.tfvars.json")
			text, err := json.Marshal(all)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, text, 0o600))
			output, err := run(t, folder, "plan", "-input=false", "-no-color", "-lock=false", "-var-file="+file)
			if refused.says == "" {
				require.NoError(t, err, output)
				return
			}
			require.Error(t, err, output)
			require.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(output, "│", " ")), " "), refused.says)
		})
	}
}
