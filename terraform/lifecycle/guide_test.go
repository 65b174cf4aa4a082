package lifecycle_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
	"billhook/internal/filetest"
)

var (
	shell      = regexp.MustCompile("(?s)```sh\n(.*?)```")
	assignment = regexp.MustCompile(`^export [A-Z_]+=`)
)

// commandsOf are the commands of a page, in their order. What only sets a variable is none.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	for _, block := range shell.FindAllStringSubmatch(filetest.Read(t, page), -1) {
		for line := range strings.Lines(block[1]) {
			if !assignment.MatchString(line) {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
	}
	return commands
}

// tools are what stands before Google's own on the path: what needs a person, a registry or services that
// run. The programs are recorded with what they would have read.
const tools = `#!/bin/sh
case "$(basename "$0") $1" in
"gcloud auth") ;;
gcloud*) exec %s "$@" ;;
ko*) for service in webhook worker; do
  echo "$KO_DOCKER_REPO/$service@sha256:$(printf 'a%%.0s' $(seq 64))"
done ;;
*) echo "$@" >> asked; env | grep -E '^(PUSH_|BILLHOOK_)' >> asked || true ;;
esac
`

// TestTheGuideLeadsFromAnEmptyProjectToTheFirstWebhook: each command of docs/start/first-deployment.md is
// run, by Terraform and gcloud themselves, on an empty project with nothing enabled but what every project
// has.
func TestTheGuideLeadsFromAnEmptyProjectToTheFirstWebhook(t *testing.T) {
	t.Parallel()
	gcloud, err := exec.LookPath("gcloud")
	require.NoError(t, err)
	i := empty(t, shop(t))
	i.cloud.Change(func(held *cloudtest.State) {
		held.Agent, held.Enabled = false, map[string]bool{"serviceusage": true, "storage": true}
	})
	root := filepath.Join(i.folder, "..")
	path := filepath.Join(root, "bin")
	require.NoError(t, os.Mkdir(path, 0o700))
	for _, name := range []string{"gcloud", "ko", "billhook"} {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), fmt.Appendf(nil, tools, gcloud), 0o700))
	}
	environment := append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "TF_DATA_DIR="+t.TempDir(),
		"TF_IN_AUTOMATION=1",
		"TF_CLI_ARGS_apply=-auto-approve -input=false -parallelism=30", "CHECKPOINT_DISABLE=1",
		"WEBHOOK_SECRET_PAYNOW=s",
		"CLOUDSDK_CONFIG="+t.TempDir(), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
		"CLOUDSDK_CORE_PROJECT="+cloudtest.Project)
	for _, api := range []string{
		"artifactregistry", "cloudresourcemanager", "iam", "secretmanager", "serviceusage",
	} {
		environment = append(environment,
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_"+strings.ToUpper(api)+"="+i.cloud.Endpoint(api))
	}
	environment = append(environment,
		"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE="+i.cloud.Endpoint("storage")+"v1/")

	commands := commandsOf(t, filepath.Join(repository, "docs", "start", "first-deployment.md"))
	require.LessOrEqual(t, len(commands), 12)
	// What the page has people write down: what runs, and after ko has printed them the images.
	written := []variables{{"bootstrap": true}, {"bootstrap": nil, "images": images('a')}}
	places := strings.NewReplacer("<bucket>", "the-bucket", "<eu, us or asia>", "eu", "<project>",
		cloudtest.Project)
	for _, line := range commands {
		if strings.HasSuffix(line, " apply") {
			i.with(written[0])
			written = written[1:]
		}
		command := exec.CommandContext(t.Context(), "bash", "-c", places.Replace(line))
		command.Dir, command.Env = root, environment
		said, err := command.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, said)
		if strings.Contains(line, "ko build") {
			require.Contains(t, string(said), "europe-docker.pkg.dev/"+cloudtest.Project+"/billhook/worker@sha256:")
		}
	}
	require.Empty(t, written, "both applies are of the page")
	i.serves(worker(events.Pool), image("worker", 'a'))
	require.NotNil(t, i.cloud.Get("storage/b/the-bucket"))
	asked := filetest.Read(t, root, "asked")
	for _, part := range []string{
		"admin doctor --pool-urls " + events.Pool + "=https://", "PUSH_AUDIENCE=https://",
		"send paynow --webhook https://billhook-webhook-",
	} {
		require.Contains(t, asked, part)
	}

	listed := filetest.Must(i.terraform("state", "list"))(t)
	require.LessOrEqual(t, strings.Count(listed, "\n")-strings.Count(listed, "data."), 110,
		"what PayNow alone needs")
}
