// Command drill is a night on call. It starts `billhook dev` afresh, on Google's own emulators or on the
// stand-ins, and provokes what wakes people: orders with a product that nobody knows, and a service
// that fails. Then it follows the runbook with bin/billhook as a process and nothing else: it finds
// what is wrong, understands it, mends the cause and replays. It prints each command and, of each
// incident, the seconds from the alert to each step.
//
//	go run ./e2e/drill [-stack emulators|dev]
//
// The command exits non-zero unless every event is processed in the end and no alert is left.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("drill", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("drill", flag.ContinueOnError)
	stack := flags.String("stack", "emulators", "what it runs on: emulators, or dev for the stand-ins")
	patience := flags.Duration("patience", 5*time.Minute, "how long one step may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	on := []string{}
	switch *stack {
	case "emulators":
		on = append(on, "--emulators")
	case "dev":
	default:
		return errors.New("-stack: must be emulators or dev")
	}
	folder, err := os.MkdirTemp("", "billhook-drill-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	binary := filepath.Join(folder, "billhook")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "billhook/cmd/billhook").CombinedOutput(); err != nil {
		return fmt.Errorf("build billhook: %w: %s", err, said)
	}
	dev, err := start(ctx, binary, on...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.end()) }()
	_, _ = fmt.Fprintf(stdout, "billhook dev is up on %s.\n", *stack)
	n := &night{binary: binary, folder: folder, at: dev, out: stdout, patience: *patience}
	return n.spend(ctx)
}

// running is `billhook dev` as a process, and where its services are.
type running struct {
	process                  *exec.Cmd
	webhook, worker, service string
}

var isUp = regexp.MustCompile(`webhook (http://\S+), worker (http://\S+),\s+stand-ins for the services that it calls (http://\S+)\.`)

// start runs dev until it serves.
func start(ctx context.Context, binary string, arguments ...string) (*running, error) {
	dev := exec.CommandContext(ctx, binary, append([]string{"dev", "--no-samples", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0"}, arguments...)...)
	dev.Cancel = func() error { return dev.Process.Signal(os.Interrupt) }
	dev.WaitDelay = 20 * time.Second
	dev.Stderr = os.Stderr
	stdout, err := dev.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := dev.Start(); err != nil {
		return nil, fmt.Errorf("start dev: %w", err)
	}
	var said bytes.Buffer
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == "Serving until Ctrl-C." {
			break
		}
	}
	up := isUp.FindStringSubmatch(said.String())
	if up == nil {
		return nil, errors.Join(fmt.Errorf("dev did not start: %s", said.String()), (&running{process: dev}).end())
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
	return &running{dev, up[1], up[2], up[3]}, nil
}

// end presses Ctrl-C and waits.
func (r *running) end() error {
	if err := r.process.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return r.process.Wait()
}
