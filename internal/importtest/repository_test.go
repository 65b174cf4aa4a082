package importtest

import (
	"debug/elf"
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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
)

const root = "../.."

func read(t *testing.T, path string) string { return filetest.Read(t, root, path) }

func matches(text, expression string) []string {
	all := regexp.MustCompile(expression).FindAllStringSubmatch(text, -1)
	return filetest.Map(all, func(match []string) string { return match[1] })
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "terraform/*.md"} {
		found := filetest.Must(filepath.Glob(filepath.Join(root, pattern)))(t)
		for _, path := range found {
			path := filetest.Must(filepath.Rel(root, path))(t)
			all[path] = read(t, path)
		}
	}
	require.Greater(t, len(all), 35, "the runbooks are among them")
	return all
}

func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, folder := range []string{"cmd", "internal", "catalog", "terraform"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder),
			func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") ||
					!slices.Contains([]string{".go", ".yaml", ".tf"}, filepath.Ext(path)) {
					return err
				}
				text, err := os.ReadFile(path)
				all.Write(text)
				return err
			}))
	}
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			tests.Write(text)
			return err
		}
		return err
	}))
	code, makefile, words := all.String(), read(t, "Makefile"), map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(code, -1) {
		words[word] = true
	}
	contains := func(document, in, what string) { // require.Contains would print the whole source on failure
		require.True(t, strings.Contains(in, what), "%s: there is no %s", document, what)
	}
	texts, seen := documents(t), 0
	texts["CHANGELOG.md"] = read(t, "CHANGELOG.md")
	for document, text := range texts {
		for _, target := range matches(text, "(?:`|\n|^)make ([a-z][a-z/-]*)") {
			contains(document, makefile, "\n"+target+":")
		}
		for _, link := range matches(text, `\]\(([^)#]+)[^)]*\)`) {
			if !strings.Contains(link, "://") {
				require.FileExists(t, filepath.Join(root, filepath.Dir(document), link), document)
			}
		}
		if document == "CHANGELOG.md" { // it tells of what was
			continue
		}
		headings := matches(text, `(?m)^(## .*)$`)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(headings))), len(headings),
			"a section stands twice in %s", document)
		for _, path := range matches(text,
			"`((?:internal|cmd|e2e|emulator|catalog|terraform|docs)/[a-z0-9/_.-]+)`") {
			// what the page has its reader write
			if !strings.Contains(path, "parcels") && !slices.Contains(
				[]string{"terraform/backend.tf", "terraform/terraform.tfvars", "terraform/.terraform.lock.hcl"}, path) {
				require.NoError(t, filetest.ErrorOf(os.Stat(filepath.Join(root, path))), document)
				seen++
			}
		}
		for _, test := range matches(text, `\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`) {
			contains(document, tests.String(), "\nfunc "+test+"(")
		}
		for _, metric := range matches(text, `\b(billhook_[a-z_]+)`) {
			contains(document, code, `("`+metric+`",`)
		}
		for _, line := range matches(text, `"message":"([^"]+)"`) {
			contains(document, code, `"`+line+`"`)
		}
		for _, task := range matches(strings.ReplaceAll(text, "cloud.google.com/tasks/", ""), `/tasks/([a-z-]+)`) {
			contains(document, code, `"`+task+`"`)
		}
		if strings.Contains(document, "runbooks") || strings.Contains(document, "deployment") ||
			strings.Contains(document, "installation") {
			for _, name := range matches(text, "`([A-Z]+_[A-Z_]+|[a-z]+_[a-z_]+)`") {
				require.True(t, words[name], "%s names %s", document, name)
			}
		}
		for _, folder := range matches(text, `go run \./([a-z0-9/]+)`) {
			require.DirExists(t, filepath.Join(root, folder), document)
		}
	}
	require.Greater(t, seen, 50)
}

func TestNoPageIsTooLongToRead(t *testing.T) {
	t.Parallel()
	for document, text := range documents(t) {
		most := 350
		if document == "README.md" {
			most = 160
		}
		require.LessOrEqual(t, strings.Count(text, "\n"), most, document)
	}
}

func TestTheQueueOfTheREADMEIsSound(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(read(t, "README.md"), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	text := read(t, "catalog/queues.yaml")
	if !strings.Contains(text, block) { // else somebody has followed the page
		text = strings.Replace(text, "\nqueues:\n", "\nqueues:\n"+block, 1)
	}
	with := filetest.Must(catalogtest.Shipped().With(map[string]string{"queues.yaml": text}))(t)
	_, id, _ := strings.Cut(block, "- id: ")
	id, _, _ = strings.Cut(id, "\n")
	_, found := with.Queue(id)
	require.True(t, found, id)
}

// dialect are words that were this project's own, in names, comments and pages, each with the field's word.
var dialect = map[string]string{
	"door": "ingest, or webhook service", "calm": "no waiting messages", "teacher": "what it does",
	"desk":   "what it does",
	"keeper": "what it stores", "rung": "error mapping", "ladder": "error mapping",
}

// onPages are of pages alone: code has the words in other senses, too.
var onPages = map[string]string{
	"told": "notified", "tells": "says, or notifies", "news": "an event, or a notification",
	"the letter": "the dead letter", "this letter": "this dead letter", "its turn": "the ordering check",
	"a turn": "the ordering check",
}

var (
	capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	letters = regexp.MustCompile(`[a-z]+`)
)

// wordsOf are the words of a text or a name, in small letters, with a space before and behind each.
func wordsOf(text string) string {
	text = strings.ToLower(capital.ReplaceAllString(text, "$1 $2"))
	return " " + strings.Join(letters.FindAllString(text, -1), " ") + " "
}

func TestNobodyHasToTranslateTheWords(t *testing.T) {
	t.Parallel()
	check := func(path, text string, refused map[string]string) {
		words := wordsOf(text)
		for word, better := range refused {
			if strings.Contains(words, " "+word+" ") || strings.Contains(words, " "+word+"s ") {
				require.Fail(t, "a word of our own", "%s says %s: say %s", path, word, better)
			}
		}
	}
	for document, text := range documents(t) {
		check(document, text, dialect)
		check(document, text, onPages)
	}
	seen, names := 0, map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".tf", ".yaml":
			if !strings.Contains(path, "testdata") {
				check(path, filetest.Read(t, path), dialect)
			}
		case ".go":
			file := filetest.Must(parser.ParseFile(token.NewFileSet(), path, nil,
				parser.ParseComments|parser.SkipObjectResolution))(t)
			seen++
			if filepath.Base(path) != "repository_test.go" {
				for _, comment := range file.Comments {
					check(path, comment.Text(), dialect)
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if name, ok := n.(*ast.Ident); ok && !names[name.Name] {
						names[name.Name] = true
						check(path, name.Name, dialect)
					}
					return true
				})
			}
		}
		return err
	}))
	require.Greater(t, seen, 300)
}

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
	found := slices.DeleteFunc(slices.Clone(all), func(step string) bool {
		return !strings.HasPrefix(step, beginning)
	})
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
			run(source, "CGO_ENABLED=0 "+strings.ReplaceAll(build, "/out/billhook", out), "TARGETOS=linux",
				"TARGETARCH="+arch, "BINARY="+binary, "GOTOOLCHAIN=local", "GOWORK=off")
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
	require.Contains(t, only(t, all, "FROM --platform=$BUILDPLATFORM "), "golang:"+version+"-",
		"go.mod says go %s", version)
	base := only(t, all, "FROM gcr.io/")
	require.Regexp(t, `^distroless/static-.*:nonroot`, base)
	require.Equal(t, "65532:65532", only(t, all, "USER "))
	for _, digest := range matches(read(t, "Dockerfile")+ko, `(@\S+)`) {
		require.Regexp(t, `^@sha256:[0-9a-f]{64}$`, digest)
	}
	require.Contains(t, read(t, ".goreleaser.yaml"), "base_image: gcr.io/"+base+"\n")
	require.Contains(t, ko,
		"defaultBaseImage: gcr.io/"+base+"\ndefaultPlatforms:\n  - linux/amd64\n  - linux/arm64\nbuilds:\n")
	for _, id := range []string{"webhook", "worker", "billhook"} {
		require.Contains(t, ko, fmt.Sprintf("  - id: %[1]s\n    main: ./cmd/%[1]s\n    env: [CGO_ENABLED=0]\n  "+
			"  flags: [-trimpath]\n    ldflags: [-s, -w]\n", id))
	}
	let := "*\n"
	for _, path := range copied(all) {
		let += "!" + path + "\n"
	}
	require.Equal(t, let+"**/*_test.go\n", regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t,
		".dockerignore"), ""), "nothing else is let through")
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
		require.Equal(t, strings.Count(text, "actions/checkout@"),
			strings.Count(text, "persist-credentials: false"), file)
	}
}
