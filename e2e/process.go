package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
)

// Process is one running service.
type Process struct {
	// URL is the service's address.
	URL string

	command *exec.Cmd
	ended   chan struct{}
}

// Log collects the output of processes.
type Log struct {
	mu         sync.Mutex
	text       bytes.Buffer
	deliveries []Delivery
}

// Delivery is the log line of a delivery, or of a further attempt within the same delivery.
type Delivery struct {
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
	Queue   string    `json:"queue"`
	EventID string    `json:"event_id"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`
	Status  int       `json:"status"`
	Attempt int       `json:"attempt"`
}

// Write takes a whole line. Only deliveries are decoded: a trial measures processes beside it.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, message := range []string{`"message":"delivery"`, `"message":"attempt again"`} {
		var d Delivery
		if bytes.Contains(line, []byte(message)) && json.Unmarshal(line, &d) == nil {
			l.deliveries = append(l.deliveries, d)
		}
	}
	return l.text.Write(line)
}

// Text returns all output so far.
func (l *Log) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Deliveries returns the deliveries so far of one event, or of all events for an empty id.
func (l *Log) Deliveries(eventID string) []Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := func(d Delivery) bool { return eventID != "" && d.EventID != eventID }
	return slices.DeleteFunc(slices.Clone(l.deliveries), others)
}

// Start runs a binary with exactly this environment. It returns once the service has logged its address.
func Start(ctx context.Context, binary string, environment []string, log *Log) (*Process, error) {
	p := &Process{ended: make(chan struct{})}
	p.command = exec.Command(binary) //nolint:noctx // it outlives ctx: Kill and Stop end it
	p.command.Env, p.command.Stderr = environment, os.Stderr
	stdout, err := p.command.StdoutPipe()
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(binary), err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.command.Process.Kill() })()
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for p.URL == "" && lines.Scan() {
		var line struct {
			Message string `json:"message"`
			Address string `json:"address"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "listening" {
			p.URL = "http://" + line.Address
		}
		_, _ = log.Write(append(lines.Bytes(), '\n')) // it never fails
	}
	go func() {
		defer close(p.ended)
		for lines.Scan() {
			_, _ = log.Write(append(lines.Bytes(), '\n'))
		}
		_ = p.command.Wait() // after Kill or Stop an error is expected
	}()
	if p.URL == "" {
		<-p.ended
		err = fmt.Errorf("start %s: it ended before it listened: %s", filepath.Base(binary), log.Text())
		return nil, errors.Join(ctx.Err(), err)
	}
	return p, nil
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended already
	<-p.ended
}

// Stop sends SIGTERM and returns the exit code. After a minute, longer than any drain, SIGQUIT makes it 2.
func (p *Process) Stop() int {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { _ = p.command.Process.Signal(syscall.SIGQUIT) }).Stop()
	<-p.ended
	return p.command.ProcessState.ExitCode()
}

// CPU returns the processor time that the ended process has used.
func (p *Process) CPU() time.Duration {
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
}

// Freeze stops the process for d, like a pause of its machine.
func (p *Process) Freeze(ctx context.Context, d time.Duration) {
	_ = p.command.Process.Signal(syscall.SIGSTOP)
	Wait(ctx, d)
	_ = p.command.Process.Signal(syscall.SIGCONT)
}

// Wait waits for d. It returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Build compiles commands into a folder. With the tag failpoints, FAILPOINT ends them at a fail point.
func Build(ctx context.Context, folder, tag string, commands ...string) error {
	// Without symbols, as in the images, linking takes half the time.
	arguments := []string{"build", "-ldflags=-s -w", "-tags", tag, "-o", folder + string(filepath.Separator)}
	output, err := exec.CommandContext(ctx, "go", append(arguments, commands...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %v: %w: %s", commands, err, output)
	}
	return nil
}
