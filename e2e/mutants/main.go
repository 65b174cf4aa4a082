// Command mutants runs gremlins on the packages that own money and messages: gremlins changes one operator at
// a time and runs their tests. The command fails if a mutant survives that accepted.yaml does not name.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"billhook/internal/platform/serve"
)

var packages = []string{
	"internal/pipeline/push", "internal/pipeline/lane", "internal/dedupe", "internal/retry",
	"internal/apps/ledger", "internal/apps/ledger/seal", "internal/apps/orders", "internal/apps/journal",
}

// alsoTested maps a package to another one that also has tests of it.
var alsoTested = map[string]string{"internal/apps/journal": "billhook/internal/compose/operations"}

const list = "e2e/mutants/accepted.yaml"

//go:embed accepted.yaml
var acceptedFile []byte

func main() {
	serve.Main("mutants", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

type place struct{ Package, Function, Mutation string }

func (p place) String() string { return p.Package + " " + p.Function + " " + p.Mutation }

// acceptance is an entry of accepted.yaml: how many mutants may survive at a place, and why.
type acceptance struct {
	place `yaml:",inline"`
	Times int
	Why   string
}

// score counts a package's mutants. lines has the survivors' lines.
type score struct {
	pkg                      string
	killed, lived, uncovered int
	lines                    map[place][]string
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	every := flags.Int("every", 1, "try about one of so many mutants")
	seed := flags.Uint64("seed", 1, "which of them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := flags.Args()
	if len(chosen) == 0 {
		chosen = packages
	}
	var accepted []acceptance
	if err := yaml.Unmarshal(acceptedFile, &accepted); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	table := "| package | tried | killed | survived | no test runs the line |\n| --- | --: | --: | --: | --: |\n"
	refused := 0
	for _, pkg := range chosen {
		_, _ = fmt.Fprintln(stdout, "== "+pkg)
		s, err := measure(ctx, pkg, *every, *seed, stdout)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		tried := s.killed + s.lived
		table += fmt.Sprintf("| `%s` | %d | %d (%.0f %%) | %d | %d |\n", pkg, tried, s.killed,
			100*float64(s.killed)/float64(max(tried, 1)), s.lived, s.uncovered)
		unknown, stale := judge(s, accepted)
		if *every > 1 {
			stale = nil // a sample leaves out some survivors
		}
		refused += len(unknown)
		_, _ = fmt.Fprint(stdout, strings.Join(append(unknown, stale...), ""))
	}
	_, _ = fmt.Fprintf(stdout, "\n%s\n", table)
	if refused > 0 {
		return fmt.Errorf("mutants survive that %s does not name (-every %d -seed %d)", list, *every, *seed)
	}
	return nil
}

// measure counts gremlins' results for a sample of the mutants. A timeout of the tests counts as killed.
func measure(ctx context.Context, pkg string, every int, seed uint64, stdout io.Writer) (score, error) {
	realGo, missing := exec.LookPath("go")
	standIn, err := filepath.Abs("e2e/mutants/path")
	if err = errors.Join(missing, err); err != nil {
		return score{}, err
	}
	report := filepath.Join(os.TempDir(), fmt.Sprintf("mutants-%d.json", os.Getpid()))
	defer func() { _ = os.Remove(report) }()
	gremlins := exec.CommandContext(ctx, "bin/gremlins", "unleash", "--exclude-files", "/", "--output", report,
		"--timeout-coefficient", "10", "--invert-logical", "--invert-loopctrl", "--invert-assignments",
		"--remove-self-assignments", "--output-statuses", "lt", "./"+pkg)
	gremlins.Env = append(os.Environ(), "PATH="+standIn+":"+os.Getenv("PATH"), "MUTANTS_GO="+realGo,
		"MUTANTS_PACKAGE=billhook/"+pkg, "MUTANTS_ALSO="+alsoTested[pkg], fmt.Sprint("MUTANTS_EVERY=", every),
		fmt.Sprint("MUTANTS_SEED=", seed), "RAPID_SEED=1", "RAPID_NOFAILFILE=true")
	gremlins.Stdout, gremlins.Stderr = stdout, stdout
	failed := gremlins.Run()
	content, err := os.ReadFile(report)
	if err = errors.Join(failed, err); err != nil {
		return score{}, fmt.Errorf("gremlins: %w", err)
	}
	var found struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type, Status string
				Line         int
			}
		}
	}
	if err := json.Unmarshal(content, &found); err != nil {
		return score{}, err
	}
	s := score{pkg: pkg, lines: map[place][]string{}}
	for _, file := range found.Files {
		functions, err := functionsOf(filepath.Join(pkg, file.Name))
		if err != nil {
			return score{}, err
		}
		for _, m := range file.Mutations {
			switch m.Status {
			case "KILLED", "TIMED OUT":
				s.killed++
			case "NOT COVERED":
				s.uncovered++
			case "LIVED":
				s.lived++
				p := place{Package: pkg, Function: functions[m.Line-1], Mutation: m.Type}
				s.lines[p] = append(s.lines[p], fmt.Sprintf("%s:%d", file.Name, m.Line))
			}
		}
	}
	return s, nil
}

var declared = regexp.MustCompile(`^func (?:\((?:\w+ )?\*?(\w+)[^)]*\) )?(\w+)`)

// functionsOf returns the function of each line of a file, such as Service.push.
func functionsOf(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	name := ""
	for line := range strings.Lines(string(text)) {
		if found := declared.FindStringSubmatch(line); found != nil {
			name = strings.TrimPrefix(found[1]+"."+found[2], ".")
		}
		names = append(names, name)
	}
	return names, err
}

// judge returns lines about survivors that the list does not name, and about entries with too few survivors.
func judge(s score, accepted []acceptance) (unknown, stale []string) {
	may := map[place]int{}
	for _, a := range accepted {
		may[a.place] = max(a.Times, 1)
		if a.Package == s.pkg && len(s.lines[a.place]) < may[a.place] {
			stale = append(stale, fmt.Sprintf("  %s names more survivors than there are: %s\n", list, a.place))
		}
	}
	for p, lines := range s.lines {
		if len(lines) > may[p] {
			unknown = append(unknown, fmt.Sprintf("  survived: %s (%s)\n", p, strings.Join(lines, ", ")))
		}
	}
	slices.Sort(unknown)
	return unknown, stale
}
