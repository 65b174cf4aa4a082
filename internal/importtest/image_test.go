package importtest

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// steps returns the instructions of the Dockerfile, one per line.
func steps(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	var all []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// only returns the one step with the prefix, without the prefix.
func only(t *testing.T, all []string, beginning string) string {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(step string) bool { return !strings.HasPrefix(step, beginning) })
	require.Len(t, found, 1, beginning)
	return strings.TrimPrefix(found[0], beginning)
}

// TestTheImagesAreBuiltAsTheDockerfileSays runs the Dockerfile's commands on exactly the files
// that it copies, for both processors.
func TestTheImagesAreBuiltAsTheDockerfileSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds six programs")
	}
	root := filepath.Join("..", "..")
	all := steps(t, root)
	source := t.TempDir()
	for _, step := range all {
		copied, ok := strings.CutPrefix(step, "COPY ")
		if !ok || strings.HasPrefix(copied, "--from=") {
			continue
		}
		paths := strings.Fields(copied)
		into := filepath.Join(source, paths[len(paths)-1])
		for _, path := range paths[:len(paths)-1] {
			if info, err := os.Stat(filepath.Join(root, path)); err == nil && info.IsDir() {
				require.NoError(t, os.CopyFS(into, os.DirFS(filepath.Join(root, path))))
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, path))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(into, path), text, 0o600))
		}
	}
	require.NoError(t, filepath.WalkDir(source, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") { // as in .dockerignore
			return os.Remove(path)
		}
		return err
	}))
	build := only(t, all, "RUN CGO_ENABLED=0 ")
	require.Contains(t, build, "go build -trimpath -ldflags=\"-s -w\" -o /out/billhook ")
	require.Equal(t, "/out/billhook /billhook", only(t, all, "COPY --from=build "))
	require.Equal(t, `["/billhook"]`, only(t, all, "ENTRYPOINT "))
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			for _, binary := range []string{"webhook", "worker", "billhook"} {
				out := filepath.Join(source, binary+"-"+arch)
				command := exec.CommandContext(t.Context(), "sh", "-c", "CGO_ENABLED=0 "+strings.ReplaceAll(build, "/out/billhook", out))
				command.Dir, command.Env = source, append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+arch, "BINARY="+binary, "GOTOOLCHAIN=local", "GOWORK=off")
				said, err := command.CombinedOutput()
				require.NoError(t, err, string(said))
				info, err := os.Stat(out)
				require.NoError(t, err)
				most := int64(30 << 20)
				if binary == "billhook" { // with the clients of what it imports from, and a worker with its pages for dev
					most = 44 << 20
				}
				require.LessOrEqual(t, info.Size(), most, "%s for %s", binary, arch)
				file, err := elf.Open(out)
				require.NoError(t, err)
				require.Equal(t, machine, file.Machine)
				libraries, err := file.ImportedLibraries()
				require.NoError(t, err)
				require.Empty(t, libraries, "the base image has none")
				require.Nil(t, file.Section(".symtab"), "symbols are left out")
				require.NoError(t, file.Close())
			}
		})
	}
}

func TestTheImagesSayWhatTheRepositorySays(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		return string(text)
	}
	all := steps(t, root)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))[1]
	require.Contains(t, only(t, all, "FROM --platform=$BUILDPLATFORM "), "golang:"+version+"-", "go.mod says go %s", version)
	base := only(t, all, "FROM gcr.io/")
	require.Contains(t, base, "distroless/static-")
	require.Contains(t, base, ":nonroot")
	require.Equal(t, "65532:65532", only(t, all, "USER "))
	for _, digest := range regexp.MustCompile(`@\S+`).FindAllString(read("Dockerfile")+read(".ko.yaml"), -1) {
		require.Regexp(t, `^@sha256:[0-9a-f]{64}$`, digest)
	}

	var ko struct {
		DefaultBaseImage string   `yaml:"defaultBaseImage"`
		DefaultPlatforms []string `yaml:"defaultPlatforms"`
		Builds           []struct {
			ID      string   `yaml:"id"`
			Main    string   `yaml:"main"`
			Env     []string `yaml:"env"`
			Flags   []string `yaml:"flags"`
			Ldflags []string `yaml:"ldflags"`
		} `yaml:"builds"`
	}
	decoder := yaml.NewDecoder(bytes.NewBufferString(read(".ko.yaml")))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&ko))
	require.Equal(t, "gcr.io/"+base, ko.DefaultBaseImage)
	require.Equal(t, []string{"linux/amd64", "linux/arm64"}, ko.DefaultPlatforms)
	require.Len(t, ko.Builds, 3)
	for _, build := range ko.Builds {
		require.Equal(t, "./cmd/"+build.ID, build.Main)
		require.DirExists(t, filepath.Join(root, build.Main))
		require.Equal(t, []string{"CGO_ENABLED=0"}, build.Env)
		require.Equal(t, []string{"-trimpath"}, build.Flags)
		require.Equal(t, []string{"-s", "-w"}, build.Ldflags)
	}

	ignored := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(".dockerignore"), ""))
	require.Equal(t, "*", ignored[0], "nothing but what follows")
	require.Equal(t, "**/*_test.go", ignored[len(ignored)-1])
	var let []string
	for _, path := range ignored[1 : len(ignored)-1] {
		let = append(let, strings.TrimPrefix(path, "!"))
	}
	var copied []string
	for _, step := range all {
		if paths, ok := strings.CutPrefix(step, "COPY "); ok && !strings.HasPrefix(paths, "--from=") {
			words := strings.Fields(paths)
			copied = append(copied, words[:len(words)-1]...)
		}
	}
	require.ElementsMatch(t, copied, let, "what is copied is let through, and nothing else")
	for _, path := range copied {
		_, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
	}
}
