// Package emulator runs Google's official Pub/Sub and Firestore emulators, as the
// Cloud SDK installs them, directly on Java: without the SDK's wrapper, which leaves
// them behind when it is stopped. It owns finding, starting, waiting for and
// stopping them. It refuses to install anything, and to know what runs on them.
package emulator

import (
	"bufio"
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
	"sync"
	"time"
)

// ErrNotInstalled: the emulators, or Java, are not on this machine.
var ErrNotInstalled = errors.New("emulator: Google's emulators are not installed (see CONTRIBUTING.md)")

// SDK is where the emulators are.
type SDK struct {
	java      string
	pubsub    string
	firestore string
}

// Find looks for the emulators in the Cloud SDK: the folder that CLOUDSDK_ROOT_DIR
// names, else the one that the gcloud on the PATH belongs to. The error wraps
// ErrNotInstalled and says what is missing.
func Find(ctx context.Context) (SDK, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return SDK{}, fmt.Errorf("%w: no java on the PATH", ErrNotInstalled)
	}
	root := os.Getenv("CLOUDSDK_ROOT_DIR")
	if root == "" {
		ask := exec.CommandContext(ctx, "gcloud", "info", "--format=value(installation.sdk_root)")
		answer, err := ask.Output()
		if err != nil {
			return SDK{}, fmt.Errorf("%w: no gcloud on the PATH", ErrNotInstalled)
		}
		root = strings.TrimSpace(string(answer))
	}
	jar := func(pattern string) string {
		found, _ := filepath.Glob(filepath.Join(root, "platform", pattern)) // the pattern is a constant and sound
		if len(found) == 0 {
			return ""
		}
		return slices.Max(found)
	}
	sdk := SDK{
		java:      java,
		pubsub:    jar("pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"),
		firestore: jar("cloud-firestore-emulator/cloud-firestore-emulator.jar"),
	}
	if sdk.pubsub == "" || sdk.firestore == "" {
		return SDK{}, fmt.Errorf("%w: the Cloud SDK has no pubsub-emulator or no cloud-firestore-emulator", ErrNotInstalled)
	}
	return sdk, nil
}

// Process is a running emulator.
type Process struct {
	addr    string
	command *exec.Cmd
	ended   chan struct{}
	once    sync.Once
}

// StartPubSub starts the Pub/Sub emulator on a port, 0 for a free one, and returns
// when it answers. What it prints goes to log, which may be nil.
func (s SDK) StartPubSub(ctx context.Context, port int, log io.Writer) (*Process, error) {
	return start(ctx, port, log, "Server started", func(port string) []string {
		return []string{
			// Acked messages stay in its memory; and a connection that is closed without an
			// answer would be sent twice at once.
			"-Xmx2g", "-Dsun.net.http.retryPost=false", "-jar", s.pubsub, "--host=127.0.0.1", "--port=" + port,
		}
	}, s.java)
}

// StartFirestore starts the Firestore emulator on a port, 0 for a free one, and
// returns when it answers. What it prints goes to log, which may be nil.
func (s SDK) StartFirestore(ctx context.Context, port int, log io.Writer) (*Process, error) {
	return start(ctx, port, log, "is now running", func(port string) []string {
		return []string{
			"-Xmx2g", "-Duser.language=en", "-cp", s.firestore,
			"com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start", "--host=127.0.0.1", "--port=" + port,
		}
	}, s.java)
}

// patience bounds a start; a JVM on a busy machine takes some seconds.
const patience = time.Minute

// start runs the command, waits for its own line that says it serves, and then for
// an answer at its port: a port in use does not stop these emulators, and somebody
// else's answer alone would prove nothing.
func start(ctx context.Context, port int, log io.Writer, ready string, arguments func(port string) []string, java string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if port == 0 {
		free, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		port = free
	}
	command := exec.Command(java, arguments(strconv.Itoa(port))...) //nolint:noctx,gosec // Stop ends it, not ctx; the program is the one that was found
	dieWithParent(command)
	output, pipe := io.Pipe()
	command.Stdout, command.Stderr = pipe, pipe
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("emulator: start: %w", err)
	}
	p := &Process{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // it is ended by a signal
		_ = pipe.Close()
		close(p.ended)
	}()
	said := make(chan struct{})
	go func() {
		told := false
		lines := bufio.NewScanner(output)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if log != nil {
				_, _ = fmt.Fprintln(log, lines.Text())
			}
			if !told && strings.Contains(lines.Text(), ready) {
				told = true
				close(said)
			}
		}
		_, _ = io.Copy(io.Discard, output) // never let it block on a full pipe
	}()
	select {
	case <-said:
	case <-p.ended:
		return nil, errors.New("emulator: it ended while starting")
	case <-ctx.Done():
		return nil, errors.Join(errors.New("emulator: it did not get ready"), p.Stop())
	}
	if err := answers(ctx, p.addr); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("emulator: free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("emulator: free port: %w", err)
	}
	return port, nil
}

// answers polls GET / until it says Ok, as both emulators do.
func answers(ctx context.Context, addr string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
		if err != nil {
			return fmt.Errorf("emulator: %w", err)
		}
		if response, err := client.Do(request); err == nil {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 16))
			_ = response.Body.Close()
			if strings.HasPrefix(strings.ToLower(string(body)), "ok") {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("emulator: it does not answer: %w", ctx.Err())
		}
	}
}

// Addr is the emulator's host:port, for PUBSUB_EMULATOR_HOST or FIRESTORE_EMULATOR_HOST.
func (p *Process) Addr() string { return p.addr }

// Stop ends the emulator and returns when it is gone. It may be called again.
func (p *Process) Stop() error {
	var err error
	p.once.Do(func() {
		if killErr := p.command.Process.Kill(); killErr != nil && !errors.Is(killErr, os.ErrProcessDone) {
			err = fmt.Errorf("emulator: stop: %w", killErr)
		}
	})
	if err == nil {
		<-p.ended
	}
	return err
}
