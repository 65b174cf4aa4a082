package importtest

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

func steps(t *testing.T) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(read(t, "Dockerfile")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

func only(t *testing.T, all []string, beginning string) string {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(step string) bool { return !strings.HasPrefix(step, beginning) })
	require.Len(t, found, 1, beginning)
	return strings.TrimPrefix(found[0], beginning)
}

func copied(all []string) (paths []string) {
	for _, step := range all {
		if files, ok := strings.CutPrefix(step, "COPY "); ok && !strings.HasPrefix(files, "--from=") {
			words := strings.Fields(files)
			paths = append(paths, words[:len(words)-1]...)
		}
	}
	return paths
}

// The commands run on exactly the files that the Dockerfile copies, for both processors.
func TestTheImagesAreBuiltAsTheDockerfileSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds six programs")
	}
	all, source := steps(t), t.TempDir()
	run := func(folder, script string, environment ...string) {
		command := exec.CommandContext(t.Context(), "sh", "-c", script)
		command.Dir, command.Env = folder, append(os.Environ(), environment...)
		said, err := command.CombinedOutput()
		require.NoError(t, err, string(said))
	}
	run(root, "cp -r --parents "+strings.Join(copied(all), " ")+" "+source)
	run(source, "find . -name '*_test.go' -delete") // as in .dockerignore
	run(source, "go run "+only(t, all, "RUN go run "))
	build := only(t, all, "RUN CGO_ENABLED=0 ")
	require.Contains(t, build, "go build -trimpath -ldflags=\"-s -w\" -o /out/billhook ")
	require.Equal(t, "/out/billhook /billhook", only(t, all, "COPY --from=build "))
	require.Equal(t, `["/billhook"]`, only(t, all, "ENTRYPOINT "))
	// The largest has the clients of what it imports from, and a worker with its pages for dev.
	most := map[string]int64{"webhook": 30 << 20, "worker": 30 << 20, "billhook": 44 << 20}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		for binary, most := range most {
			out := filepath.Join(source, binary+"-"+arch)
			run(source, "CGO_ENABLED=0 "+strings.ReplaceAll(build, "/out/billhook", out), "TARGETOS=linux", "TARGETARCH="+arch, "BINARY="+binary, "GOTOOLCHAIN=local", "GOWORK=off")
			info := filetest.Must(os.Stat(out))(t)
			require.LessOrEqual(t, info.Size(), most, out)
			file := filetest.Must(elf.Open(out))(t)
			require.Equal(t, machine, file.Machine)
			require.Empty(t, filetest.Must(file.ImportedLibraries())(t), "the base image has none")
			require.Nil(t, file.Section(".symtab"), "symbols are left out")
			require.NoError(t, file.Close())
		}
	}
}

func TestTheImagesSayWhatTheRepositorySays(t *testing.T) {
	t.Parallel()
	all, ko := steps(t), read(t, ".ko.yaml")
	version := matches(read(t, "go.mod"), `(?m)^go (\d+\.\d+)`)[0]
	require.Contains(t, only(t, all, "FROM --platform=$BUILDPLATFORM "), "golang:"+version+"-", "go.mod says go %s", version)
	base := only(t, all, "FROM gcr.io/")
	require.Regexp(t, `^distroless/static-.*:nonroot`, base)
	require.Equal(t, "65532:65532", only(t, all, "USER "))
	for _, digest := range matches(read(t, "Dockerfile")+ko, `(@\S+)`) {
		require.Regexp(t, `^@sha256:[0-9a-f]{64}$`, digest)
	}
	require.Contains(t, read(t, ".goreleaser.yaml"), "base_image: gcr.io/"+base+"\n")
	require.Contains(t, ko, "defaultBaseImage: gcr.io/"+base+"\ndefaultPlatforms:\n  - linux/amd64\n  - linux/arm64\nbuilds:\n")
	for _, id := range []string{"webhook", "worker", "billhook"} {
		require.Contains(t, ko, fmt.Sprintf("  - id: %[1]s\n    main: ./cmd/%[1]s\n    env: [CGO_ENABLED=0]\n    flags: [-trimpath]\n    ldflags: [-s, -w]\n", id))
	}
	let := "*\n"
	for _, path := range copied(all) {
		let += "!" + path + "\n"
	}
	require.Equal(t, let+"**/*_test.go\n", regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, ".dockerignore"), ""), "nothing else is let through")
}

// A tag of an action can be moved by whoever takes over its repository; a commit cannot.
func TestWorkflowsUseActionsByCommitAndMayDoLittle(t *testing.T) {
	t.Parallel()
	files := filetest.Must(filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		text := read(t, filepath.Join(".github", "workflows", filepath.Base(file)))
		require.Contains(t, text, "\npermissions: { contents: read }\n", file)
		for _, action := range matches(text, `uses: (.*)`) {
			require.Regexp(t, `^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, action, file)
		}
		jobs := strings.Count(text, "runs-on: ")
		require.Equal(t, jobs, strings.Count(text, "timeout-minutes: "), "%s: each job ends", file)
		require.Equal(t, strings.Count(text, "actions/checkout@"), strings.Count(text, "persist-credentials: false"), file)
	}
}
