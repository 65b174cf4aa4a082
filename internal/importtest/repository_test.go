package importtest

import (
	"cmp"
	"debug/elf"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
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

// files reads all files of the repository with one of these extensions, by their paths.
func files(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	return filetest.Tree(t, root, func(path string) bool {
		return slices.Contains(extensions, filepath.Ext(path))
	})
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	page := regexp.MustCompile(`^(README|CONTRIBUTING|docs/.+|terraform/[^/]+)\.md$`)
	all := files(t, ".md")
	maps.DeleteFunc(all, func(path, _ string) bool { return !page.MatchString(path) })
	require.Greater(t, len(all), 35, "the runbooks are among them")
	return all
}

// readersOwn are the files that a page has its reader write.
var readersOwn = []string{
	"internal/apps/parcels", "internal/apps/parcels/parcels.go",
	"terraform/backend.tf", "terraform/terraform.tfvars", "terraform/.terraform.lock.hcl",
}

func TestNamesInTheDocumentsExist(t *testing.T) {
	t.Parallel()
	var sources, tests strings.Builder
	ours := regexp.MustCompile(`^(cmd|internal|catalog|terraform)/`)
	for path, text := range files(t, ".go", ".yaml", ".tf") {
		switch {
		case strings.HasSuffix(path, "_test.go"):
			tests.WriteString(text)
		case ours.MatchString(path):
			sources.WriteString(text)
		}
	}
	code, makefile, words := sources.String(), read(t, "Makefile"), map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(code, -1) {
		words[word] = true
	}
	contains := func(document, in, what string) { // require.Contains would print the whole source on failure
		require.True(t, strings.Contains(in, what), "%s: there is no %s", document, what)
	}
	outputs, found := read(t, "terraform/outputs.tf"), map[string]bool{}
	texts, seen, operators := documents(t), 0, regexp.MustCompile("runbooks|deployment|installation")
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
		if document == "CHANGELOG.md" { // it names what was removed
			continue
		}
		most := map[string]int{"README.md": 160}[document]
		require.LessOrEqual(t, strings.Count(text, "\n"), cmp.Or(most, 350), "%s is too long to read", document)
		headings := matches(text, `(?m)^(## .*)$`)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(headings))), len(headings),
			"a section stands twice in %s", document)
		for _, path := range matches(text,
			"`((?:internal|cmd|e2e|emulator|catalog|terraform|docs)/[a-z0-9/_.-]+)`") {
			if !slices.Contains(readersOwn, path) {
				require.NoError(t, filetest.ErrorOf(os.Stat(filepath.Join(root, path))), document)
				seen++
			}
		}
		for name, in := range map[string][3]string{
			`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`:                       {tests.String(), "\nfunc ", "("},
			`\b(billhook_[a-z_]+)`:                                      {code, `("`, `",`},
			`"message":"([^"]+)"`:                                       {code, `"`, `"`},
			`(?:POST |")/tasks/([a-z-]+)`:                               {code, `"`, `"`},
			"(?:=terraform output(?: -raw| -json)? |output `)([a-z_]+)": {outputs, `output "`, `"`},
		} {
			for _, named := range matches(text, name) {
				contains(document, in[0], in[1]+named+in[2])
				found[name] = true
			}
		}
		if operators.MatchString(document) {
			for _, name := range matches(text, "`([A-Z]+_[A-Z_]+|[a-z]+_[a-z_]+)`") {
				require.True(t, words[name], "%s names %s", document, name)
			}
		}
		for _, folder := range matches(text, `go run \./([a-z0-9/]+)`) {
			require.DirExists(t, filepath.Join(root, folder), document)
		}
	}
	require.Greater(t, seen, 50)
	require.Len(t, found, 5, "each expression finds names")
}

func TestTheQueueInTheREADMEIsValid(t *testing.T) {
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

// dialect has words of this project alone, each with the field's word, for names, comments, texts and pages.
var dialect = map[string]string{
	"door": "ingest, or webhook service", "calm": "no waiting messages", "rung": "error mapping",
	"ladder": "error mapping", "desk": "what it does", "teacher": "what it does", "authority": "what it does",
	"keeper": "what it stores", "let ask": "requested", "goes no further": "is cancelled", "knock": "call",
	"course": "outcome, or nothing", "graveyard": "dead letters", "doorbell": "alarm", "doorway": "ingest",
	"untold": "not reported", "heard of": "known", "this letter": "this dead letter",
	"a turn": "the ordering check", "told": "notified, or reported", "tells": "says, or notifies",
	"tell of": "report", "news": "an event, or a notification", "heard": "known, or received",
	"stranger": "an unknown sender, or somebody without access", "strangers": "unknown senders",
}

// onPages are for pages alone: code has some of them in other senses, too.
var onPages = map[string]string{
	"the letter": "the dead letter", "its turn": "the ordering check", "in turn": "the ordering check",
	"hear of": "notice",
}

var (
	capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	letters = regexp.MustCompile(`[a-z]+`)
)

// wordsOf are the words of a text or a name, in lower case, with a space before and after each.
func wordsOf(text string) string {
	text = strings.ToLower(capital.ReplaceAllString(text, "$1 $2"))
	return " " + strings.Join(letters.FindAllString(text, -1), " ") + " "
}

func TestNoTextHasAWordOfOurOwn(t *testing.T) {
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
	for path, text := range files(t, ".tf", ".yaml") {
		if !strings.Contains(path, "testdata") {
			check(path, text, dialect)
		}
	}
	known := map[string]bool{}
	for path, text := range files(t, ".go") {
		if strings.HasSuffix(path, "importtest/repository_test.go") {
			continue
		}
		var source scanner.Scanner
		var comments strings.Builder // together, since a line may end within an expression
		source.Init(token.NewFileSet().AddFile(path, -1, len(text)), []byte(text), nil, scanner.ScanComments)
		for _, kind, text := source.Scan(); kind != token.EOF; _, kind, text = source.Scan() {
			if kind == token.COMMENT {
				comments.WriteString(text)
			}
			// A string of one word is an id, or an address.
			said := kind == token.IDENT || kind == token.STRING && strings.Contains(text, " ")
			if said && !known[text] {
				known[text] = true
				check(path, text, dialect)
			}
		}
		check(path, comments.String(), dialect)
	}
	require.Greater(t, len(known), 10_000)
}

func steps(t *testing.T) []string {
	t.Helper()
	return matches(read(t, "Dockerfile"), `(?m)^\s*([^#\s].*?)\s*$`)
}

func only(t *testing.T, all []string, beginning string) string {
	t.Helper()
	found := matches(strings.Join(all, "\n"), `(?m)^`+regexp.QuoteMeta(beginning)+`(.*)$`)
	require.Len(t, found, 1, beginning)
	return found[0]
}

func copied(all []string) (paths []string) {
	for _, files := range matches(strings.Join(all, "\n"), `(?m)^COPY ([^-].*) \S+$`) {
		paths = append(paths, strings.Fields(files)...)
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
	builder := only(t, all, "FROM --platform=$BUILDPLATFORM ")
	require.Contains(t, builder, "golang:"+version+"-", "go.mod says go %s", version)
	base := only(t, all, "FROM gcr.io/")
	require.Regexp(t, `^distroless/static-.*:nonroot`, base)
	require.Equal(t, "65532:65532", only(t, all, "USER "))
	for _, digest := range matches(read(t, "Dockerfile")+ko, `(@\S+)`) {
		require.Regexp(t, `^@sha256:[0-9a-f]{64}$`, digest)
	}
	require.Contains(t, read(t, ".goreleaser.yaml"), "base_image: gcr.io/"+base+"\n")
	const platforms = "\ndefaultPlatforms:\n  - linux/amd64\n  - linux/arm64\nbuilds:\n"
	require.Contains(t, ko, "defaultBaseImage: gcr.io/"+base+platforms)
	const flags = "\n    env: [CGO_ENABLED=0]\n    flags: [-trimpath]\n    ldflags: [-s, -w]\n"
	for _, id := range []string{"webhook", "worker", "billhook"} {
		require.Contains(t, ko, fmt.Sprintf("  - id: %[1]s\n    main: ./cmd/%[1]s%[2]s", id, flags))
	}
	let := "*\n"
	for _, path := range copied(all) {
		let += "!" + path + "\n"
	}
	ignored := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, ".dockerignore"), "")
	require.Equal(t, let+"**/*_test.go\n", ignored, "nothing else is copied")
}

// A tag of an action can be moved by whoever takes over its repository; a commit cannot.
func TestWorkflowsUseActionsByCommitAndMayOnlyReadContents(t *testing.T) {
	t.Parallel()
	workflows := files(t, ".yml")
	maps.DeleteFunc(workflows, func(path, _ string) bool {
		return !strings.HasPrefix(path, ".github/workflows/")
	})
	require.NotEmpty(t, workflows)
	for file, text := range workflows {
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
