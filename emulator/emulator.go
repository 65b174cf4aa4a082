// Package emulator finds, starts and stops Google's Pub/Sub and Firestore emulators, which run on Java. The
// SDK's own wrapper leaves them running. It installs nothing and does not know what uses them.
package emulator

import (
	"bufio"
	"bytes"
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

// ErrNotInstalled means that the emulators or Java are missing on this machine.
var ErrNotInstalled = errors.New("emulator: Google's emulators are not installed (see CONTRIBUTING.md)")

// SDK holds the paths of the emulators.
type SDK struct{ java, pubsub, firestore string }

// Find looks for the emulators in the Cloud SDK that CLOUDSDK_ROOT_DIR or GOOGLE_CLOUD_SDK names, else in the
// SDK of the gcloud on the PATH. The error wraps ErrNotInstalled and names what is missing.
func Find() (sdk SDK, err error) {
	if sdk.java, err = exec.LookPath("java"); err != nil {
		return SDK{}, fmt.Errorf("%w: no java on the PATH", ErrNotInstalled)
	}
	root := cmp.Or(os.Getenv("CLOUDSDK_ROOT_DIR"), os.Getenv("GOOGLE_CLOUD_SDK"))
	if root == "" {
		gcloud, err := exec.LookPath("gcloud")
		if err == nil {
			gcloud, err = filepath.EvalSymlinks(gcloud)
		}
		if err != nil {
			return SDK{}, fmt.Errorf("%w: no gcloud on the PATH", ErrNotInstalled)
		}
		root = filepath.Dir(filepath.Dir(gcloud))
	}
	for pattern, jar := range map[string]*string{
		"pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar":   &sdk.pubsub,
		"cloud-firestore-emulator/cloud-firestore-emulator.jar": &sdk.firestore,
	} {
		found, err := filepath.Glob(filepath.Join(root, "platform", pattern))
		if err != nil || len(found) == 0 {
			component, _, _ := strings.Cut(pattern, "/")
			return SDK{}, fmt.Errorf("%w: the Cloud SDK in %s has no %s", ErrNotInstalled, root, component)
		}
		*jar = found[len(found)-1]
	}
	return sdk, nil
}

// Process is a running emulator. Stop ends it; on Linux so does the end of the program that started it.
type Process struct {
	addr    string
	command *exec.Cmd
	ended   chan struct{}
}

// common has the options of both emulators; an older Java ignores unknown ones. Without the compiler's last
// stage, which pays off only after minutes, they start faster.
var common = []string{
	"-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx2g",
}

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
	if err = both.Wait(); err != nil {
		err = errors.Join(err, pubsub.Stop(), firestore.Stop())
	}
	return pubsub, firestore, err
}

// StartPubSub starts the Pub/Sub emulator on a free port and returns once it answers.
func (s SDK) StartPubSub(ctx context.Context) (*Process, error) {
	// Without retryPost=false, Java would repeat a push whose connection was closed without an answer.
	return s.start(ctx, "Server started", (*Process).greets, "-Dsun.net.http.retryPost=false", "-jar", s.pubsub)
}

// greets requests /, which the emulator answers.
func (p *Process) greets(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

// StartFirestore starts the Firestore emulator on a free port and returns once it has answered a write and
// two queries, because the first ones in a JVM may take longer than a service's timeout.
func (s SDK) StartFirestore(ctx context.Context) (*Process, error) {
	return s.start(ctx, "is now running", (*Process).warm, "-Duser.language=en", "-cp", s.firestore,
		"com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start")
}

func (p *Process) warm(ctx context.Context) (err error) {
	documents, err := firestore.NewEmulated(ctx, p.addr, "warm", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, documents.Close()) }()
	_, err = documents.Commit(ctx, []store.Write{store.Set(store.Key{Collection: "warm", ID: "up"}, nil)})
	for _, count := range []bool{true, false} {
		if err == nil {
			_, err = documents.Query(ctx, store.Query{Collection: "warm", Count: count, Limit: 1})
		}
	}
	return err
}

var errPortTaken = errors.New("emulator: the port is in use")

// start runs an emulator on a free port, and waits for its log line that it serves, then for an answer: the
// answer alone could come from another program. It kills an emulator that is not ready in two minutes.
func (s SDK) start(
	ctx context.Context, ready string, answers func(*Process, context.Context) error, arguments ...string,
) (*Process, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("emulator: free port: %w", err)
	}
	addr := listener.Addr().(*net.TCPAddr)
	all := slices.Concat(common, arguments, []string{"--host=127.0.0.1", "--port=" + strconv.Itoa(addr.Port)})
	command := exec.Command(s.java, all...) //nolint:noctx,gosec // Stop ends it, not ctx; the program was found
	tie(command)
	output, err := command.StdoutPipe()
	command.Stderr = command.Stdout
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("emulator: start: %w", err)
	}
	p, head := &Process{addr: addr.String(), command: command, ended: make(chan struct{})}, &bytes.Buffer{}
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute) // it takes seconds even on a busy machine
	defer cancel()
	defer context.AfterFunc(limited, func() { _ = kill(command.Process) })()
	err = listen(io.TeeReader(output, head), ready)
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, output)
		_ = command.Wait() // Stop ends it by a signal, so an error is expected
	}()
	for err == nil {
		if err = answers(p, limited); err == nil {
			return p, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
			err = nil
		case <-p.ended:
		}
	}
	err = errors.Join(limited.Err(), err, p.Stop())
	if errors.Is(err, errPortTaken) { // another program took it before Java did
		return s.start(ctx, ready, answers, arguments...)
	}
	return nil, fmt.Errorf("%w; its output:\n%s", err, head)
}

// listen reads an emulator's output up to the line that shows whether it serves.
func listen(output io.Reader, ready string) error {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		switch {
		case strings.Contains(lines.Text(), ready):
			return nil
		case strings.Contains(lines.Text(), "Address already in use"): // the Pub/Sub emulator then keeps running
			return errPortTaken
		}
	}
	return errors.New("emulator: it ended while starting")
}

// Addr is the emulator's host:port, for PUBSUB_EMULATOR_HOST or FIRESTORE_EMULATOR_HOST.
func (p *Process) Addr() string { return p.addr }

// Stop kills the emulator, which stores nothing, and waits for its end. It may be called again, and on nil.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended: // another process may have its process id by now
		return nil
	default:
	}
	if err := kill(p.command.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("emulator: stop: %w", err)
	}
	<-p.ended
	return nil
}
