// Package emulator runs Google's Pub/Sub and Firestore emulators directly on Java. The Cloud
// SDK's own wrapper is not used: when it is stopped, it leaves them running. It owns finding,
// starting, awaiting and stopping them. It refuses to install anything, and to know what runs
// on them.
package emulator

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
)

// ErrNotInstalled: the emulators or Java are missing on this machine.
var ErrNotInstalled = errors.New("emulator: Google's emulators are not installed (see CONTRIBUTING.md)")

// SDK holds the paths of the emulators.
type SDK struct {
	java      string
	pubsub    string
	firestore string
}

// Find looks for the emulators in the Cloud SDK: in the folder that CLOUDSDK_ROOT_DIR or
// GOOGLE_CLOUD_SDK names, else in the one of the gcloud on the PATH. The error wraps
// ErrNotInstalled and says what is missing.
func Find(ctx context.Context) (SDK, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return SDK{}, fmt.Errorf("%w: no java on the PATH", ErrNotInstalled)
	}
	if root := cmp.Or(os.Getenv("CLOUDSDK_ROOT_DIR"), os.Getenv("GOOGLE_CLOUD_SDK")); root != "" {
		return within(root, java)
	}
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		return SDK{}, fmt.Errorf("%w: no gcloud on the PATH", ErrNotInstalled)
	}
	// The link on the PATH usually leads to <root>/bin/gcloud. Asking gcloud takes seconds.
	if target, err := filepath.EvalSymlinks(gcloud); err == nil {
		if sdk, err := within(filepath.Dir(filepath.Dir(target)), java); err == nil {
			return sdk, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output() //nolint:gosec // the gcloud that was found
	switch {
	case ctx.Err() != nil:
		// This is not ErrNotInstalled: a test that skips on that would skip by accident.
		return SDK{}, fmt.Errorf("emulator: gcloud info: %w", ctx.Err())
	case err != nil:
		return SDK{}, fmt.Errorf("%w: gcloud info: %w", ErrNotInstalled, err)
	}
	return within(strings.TrimSpace(string(answer)), java)
}

func within(root, java string) (SDK, error) {
	sdk := SDK{java: java}
	for _, wanted := range []struct {
		component, pattern string
		path               *string
	}{
		{"pubsub-emulator", "lib/cloud-pubsub-emulator-*-all.jar", &sdk.pubsub},
		{"cloud-firestore-emulator", "cloud-firestore-emulator.jar", &sdk.firestore},
	} {
		found, err := filepath.Glob(filepath.Join(root, "platform", wanted.component, wanted.pattern))
		if err != nil || len(found) == 0 {
			return SDK{}, fmt.Errorf("%w: the Cloud SDK has no %s", ErrNotInstalled, wanted.component)
		}
		*wanted.path = newest(found)
	}
	return sdk, nil
}

// newest returns the path with the highest version in its file name: 0.8.20 is newer than
// 0.8.9.
func newest(paths []string) string {
	version := func(path string) []int {
		var numbers []int
		for _, digits := range strings.FieldsFunc(filepath.Base(path), func(r rune) bool { return r < '0' || r > '9' }) {
			n, _ := strconv.Atoi(digits) // digits only; a number that is too long counts as the largest
			numbers = append(numbers, n)
		}
		return numbers
	}
	return slices.MaxFunc(paths, func(a, b string) int { return slices.Compare(version(a), version(b)) })
}

// Process is a running emulator. It ends with Stop, and on Linux also with the program that
// started it.
type Process struct {
	addr    string
	command *exec.Cmd
	// head is the first output, for the error of a failed start. Read it after ended is closed.
	head  []string
	ended chan struct{}
}

// common are the options of both emulators. All but the last turn off Java's optimizations that pay
// off only after minutes. With them an emulator uses most of a processor for longer than most tests
// take. A Java without these options ignores them.
var common = []string{"-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx2g"}

// Start starts both emulators, or neither.
func (s SDK) Start(ctx context.Context) (pubsub, firestore *Process, err error) {
	var both errgroup.Group
	both.Go(func() (err error) {
		pubsub, err = s.StartPubSub(ctx)
		return err
	})
	both.Go(func() (err error) {
		firestore, err = s.StartFirestore(ctx)
		return err
	})
	err = both.Wait()
	for _, p := range []*Process{pubsub, firestore} {
		if err != nil && p != nil {
			err = errors.Join(err, p.Stop())
		}
	}
	return pubsub, firestore, err
}

// StartPubSub starts the Pub/Sub emulator on a free port, and returns when it answers.
func (s SDK) StartPubSub(ctx context.Context) (*Process, error) {
	// Without retryPost=false, Java would repeat a push whose connection is closed without an answer.
	return s.start(ctx, "Server started", "-Dsun.net.http.retryPost=false", "-jar", s.pubsub)
}

// StartFirestore starts the Firestore emulator in the same way. It returns after one write and one
// query have been answered: the first ones in a JVM may take longer than the timeout of a service.
func (s SDK) StartFirestore(ctx context.Context) (*Process, error) {
	p, err := s.start(ctx, "is now running", "-Duser.language=en", "-cp", s.firestore, "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start")
	if err != nil {
		return nil, err
	}
	if err := p.warm(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Process) warm(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	documents, err := firestore.NewEmulated(ctx, p.addr, "warm", "")
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	defer func() { err = errors.Join(err, documents.Close()) }()
	return p.until(ctx, "write", func(ctx context.Context) error {
		_, err := documents.Commit(ctx, []store.Write{store.Set(store.Key{Collection: "warm", ID: "up"}, nil)})
		for _, count := range []bool{true, false} {
			if err == nil {
				_, err = documents.Query(ctx, store.Query{Collection: "warm", Count: count, Limit: 1})
			}
		}
		return err
	})
}

// patience bounds a start, which takes seconds on a busy machine.
const patience = time.Minute

// portTaken is the output of both emulators where their port is in use. The Pub/Sub emulator
// then keeps running without serving.
const portTaken = "Address already in use"

var errPortTaken = errors.New("emulator: the port is in use")

// start runs an emulator, waits for its output line that it serves, and then for an answer at its
// port. The answer alone could be another program's.
func (s SDK) start(ctx context.Context, ready string, arguments ...string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("emulator: free port: %w", err)
		}
		addr, port := listener.Addr().String(), listener.Addr().(*net.TCPAddr).Port
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("emulator: free port: %w", err)
		}
		command := exec.Command(s.java, slices.Concat(common, arguments, []string{"--host=127.0.0.1", "--port=" + strconv.Itoa(port)})...) //nolint:noctx,gosec // Stop ends it, not ctx; the program is the one that was found
		p, err := startOn(ctx, addr, ready, command)
		if !errors.Is(err, errPortTaken) { // by another program, before Java did
			return p, err
		}
	}
}

func startOn(ctx context.Context, addr, ready string, command *exec.Cmd) (*Process, error) {
	tie(command)
	output, pipe := io.Pipe()
	command.Stdout, command.Stderr = pipe, pipe
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("emulator: start: %w", err)
	}
	p := &Process{addr: addr, command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // Stop ends it by a signal, so an error is expected
		_ = pipe.Close()
	}()
	serves := make(chan error, 1)
	go p.read(output, ready, serves)
	var err error
	select {
	case err = <-serves:
	case <-ctx.Done():
		err = fmt.Errorf("emulator: it did not get ready: %w", ctx.Err())
	}
	if err == nil {
		err = p.answers(ctx)
	}
	if err != nil {
		if stopErr := p.Stop(); stopErr != nil {
			return nil, errors.Join(err, stopErr)
		}
		return nil, fmt.Errorf("%w; its output:\n%s", err, strings.Join(p.head, "\n"))
	}
	return p, nil
}

const maxHead = 20

var errEnded = errors.New("emulator: it ended while starting")

// read reads the output until it ends. It sends once to serves: nil when the emulator serves, else errPortTaken or errEnded.
func (p *Process) read(output io.Reader, ready string, serves chan<- error) {
	defer close(p.ended)
	err := errEnded
	for lines := bufio.NewScanner(output); errors.Is(err, errEnded) && lines.Scan(); {
		if len(p.head) < maxHead {
			p.head = append(p.head, lines.Text())
		}
		switch {
		case strings.Contains(lines.Text(), ready):
			err = nil
		case strings.Contains(lines.Text(), portTaken):
			err = errPortTaken
		}
	}
	serves <- err
	_, _ = io.Copy(io.Discard, output) // or the process would block on a full pipe
}

// answers repeats GET / until the answer is Ok, as both emulators answer it.
func (p *Process) answers(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	return p.until(ctx, "answer", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(response.Body, 16))
		if err == nil && !strings.HasPrefix(strings.ToLower(string(body)), "ok") {
			err = errors.New("something else is there")
		}
		return err
	})
}

func (p *Process) until(ctx context.Context, what string, try func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("emulator: it does not %s: %w: %w", what, ctx.Err(), err)
		}
	}
}

// Addr is the emulator's host:port, for PUBSUB_EMULATOR_HOST or FIRESTORE_EMULATOR_HOST.
func (p *Process) Addr() string { return p.addr }

// Stop kills the emulator, which stores nothing, and waits until it has ended. It may be called more than once.
func (p *Process) Stop() error {
	select {
	case <-p.ended: // its number may be another's by now
		return nil
	default:
	}
	if err := kill(p.command.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("emulator: stop: %w", err)
	}
	<-p.ended
	return nil
}
