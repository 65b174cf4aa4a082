// Command planted checks that the tests notice faults. It plants one-line faults, one by one,
// in copies of single files, which the compiler takes in place of the originals (go test
// -overlay): the tree does not change. The one test that the fault names has to fail. The
// command exits non-zero unless every fault is caught, also where a fault no longer fits the
// code.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/serve"
)

func main() {
	serve.Main("planted", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

// fault is a one-line mistake.
type fault struct {
	// says describes the fault in a few words.
	says string
	// file, relative to the module's root, has old exactly once. new replaces it.
	file, old, new string
	// pkg, relative to the root, has the test that must fail.
	pkg, test string
}

// verdict is the outcome of a fault.
type verdict string

const (
	caught   verdict = "caught"
	survived verdict = "SURVIVED"
	// moved: file does not have old exactly once.
	moved verdict = "MOVED"
	// uncompiled: the fault does not compile, which proves nothing.
	uncompiled verdict = "DOES NOT COMPILE"
	// unclear: the test did not run, or something else failed.
	unclear verdict = "UNCLEAR"
)

// trial is the result of one fault.
type trial struct {
	verdict verdict
	took    time.Duration
	// output is the output of go test, unless the fault was caught.
	output string
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("planted", flag.ContinueOnError)
	only := flags.String("run", "", "plant only the faults whose sentence or file matches this expression")
	every := flags.Int("every", 1, "plant only every n-th fault")
	parallel := flags.Int("p", runtime.GOMAXPROCS(0), "how many at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	expression, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *every < 1 || *parallel < 1 {
		return errors.New("-every and -p are 1 or more")
	}
	var chosen []fault
	for i, f := range faults {
		if i%*every == 0 && (expression.MatchString(f.says) || expression.MatchString(f.file)) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return errors.New("no fault is of that name")
	}
	output, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	g := runner{root: strings.TrimSpace(string(output))}
	if g.copies, err = os.MkdirTemp("", "planted-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(g.copies) }()
	if err := g.checkTests(ctx, chosen); err != nil {
		return err
	}

	trials := make([]trial, len(chosen))
	group := errgroup.Group{}
	group.SetLimit(*parallel)
	for i, f := range chosen {
		group.Go(func() error {
			began := time.Now()
			trials[i] = g.plant(ctx, i, f)
			trials[i].took = time.Since(began)
			return nil
		})
	}
	_ = group.Wait() // trials return no errors
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return report(stdout, chosen, trials)
}

// report prints the table, the score, and the output of each fault that was not caught.
func report(stdout io.Writer, chosen []fault, trials []trial) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	good := 0
	var details strings.Builder
	for i, f := range chosen {
		_, _ = fmt.Fprintf(table, "%s\t%.1fs\t%s\t%s\t%s %s\n", trials[i].verdict, trials[i].took.Seconds(), f.says, f.file, f.pkg, f.test)
		if trials[i].verdict == caught {
			good++
			continue
		}
		_, _ = fmt.Fprintf(&details, "\n%s: %s (%s)\n%s\n", trials[i].verdict, f.says, f.file, trials[i].output)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%splanted %d, caught %d\n", &details, len(chosen), good); err != nil {
		return err
	}
	if good < len(chosen) {
		return fmt.Errorf("%d of %d faults were not caught", len(chosen)-good, len(chosen))
	}
	return nil
}

// runner runs the trials. root is the module, copies the folder of the changed files.
type runner struct {
	root, copies string
	// rapid holds the packages whose tests use rapid.
	rapid map[string]bool
}

// event is one line of go test -json.
type event struct {
	Action, Test, Output string
}

// checkTests makes sure that every test passes without a fault.
func (g *runner) checkTests(ctx context.Context, chosen []fault) error {
	tests := map[string][]string{}
	for _, f := range chosen {
		tests[f.pkg] = append(tests[f.pkg], f.test)
	}
	list := exec.CommandContext(ctx, "go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`)
	for pkg := range tests {
		list.Args = append(list.Args, "./"+pkg)
	}
	list.Dir = g.root
	output, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages: %w", err)
	}
	g.rapid = map[string]bool{}
	for line := range strings.Lines(string(output)) {
		binary, deps, _ := strings.Cut(line, " ")
		for pkg := range tests {
			if strings.HasSuffix(binary, "/"+pkg+".test") && slices.Contains(strings.Fields(deps), "pgregory.net/rapid") {
				g.rapid[pkg] = true
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for pkg, names := range tests {
		group.Go(func() error {
			names := slices.Compact(slices.Sorted(slices.Values(names)))
			events, output, _ := g.test(ctx, fault{pkg: pkg, test: strings.Join(names, "|")}, "")
			for _, name := range names {
				if !slices.ContainsFunc(events, func(e event) bool { return e.Test == name && e.Action == "pass" }) {
					return fmt.Errorf("without any fault, %s of %s does not pass:\n%s", name, pkg, output)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// plant tries one fault.
func (g *runner) plant(ctx context.Context, number int, f fault) trial {
	path := filepath.Join(g.root, f.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return trial{verdict: moved, output: err.Error()}
	}
	if n := bytes.Count(source, []byte(f.old)); n != 1 {
		return trial{verdict: moved, output: fmt.Sprintf("there %d times, and not once:\n%s", n, f.old)}
	}
	changed := filepath.Join(g.copies, fmt.Sprint(number, ".go"))
	overlay := filepath.Join(g.copies, fmt.Sprint(number, ".json"))
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err == nil {
		err = errors.Join(
			os.WriteFile(changed, bytes.Replace(source, []byte(f.old), []byte(f.new), 1), 0o600),
			os.WriteFile(overlay, plan, 0o600),
		)
	}
	if err != nil {
		return trial{verdict: unclear, output: err.Error()}
	}
	events, output, err := g.test(ctx, f, overlay)
	ended := func(action string) bool {
		return slices.ContainsFunc(events, func(e event) bool { return e.Test == f.test && e.Action == action })
	}
	switch {
	case slices.ContainsFunc(events, func(e event) bool { return e.Action == "build-fail" }):
		return trial{verdict: uncompiled, output: output}
	case err != nil && ended("fail"):
		return trial{verdict: caught}
	case err == nil && ended("pass"):
		return trial{verdict: survived}
	default:
		return trial{verdict: unclear, output: fmt.Sprintf("%s\n%v", output, err)}
	}
}

// test runs the fault's test, with the overlay if it is not empty.
func (g *runner) test(ctx context.Context, f fault, overlay string) (events []event, output string, err error) {
	test := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout=2m", "-run=^("+f.test+")$")
	if overlay != "" {
		test.Args = append(test.Args, "-overlay="+overlay)
	}
	test.Args = append(test.Args, "./"+f.pkg)
	if g.rapid[f.pkg] {
		// rapid would write a file for each failure, and spend long on shrinking it.
		test.Args = append(test.Args, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	test.Dir = g.root
	var stdout, stderr bytes.Buffer
	test.Stdout, test.Stderr = &stdout, &stderr
	err = test.Run()
	var text strings.Builder
	for line := range bytes.Lines(stdout.Bytes()) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			e.Output = string(line) // output of the go command itself
		}
		text.WriteString(e.Output)
		events = append(events, e)
	}
	text.Write(stderr.Bytes())
	return events, text.String(), err
}
