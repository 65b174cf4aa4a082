package emulator_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/emulator"
	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
)

// parentVariable makes the test program start an emulator, print its address, and wait until it is killed.
const parentVariable = "EMULATOR_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		os.Exit(parent())
	}
	goleak.VerifyTestMain(m)
}

func parent() int {
	ctx := context.Background()
	sdk, err := emulator.Find()
	if err == nil {
		var p *emulator.Process
		if p, err = sdk.StartPubSub(ctx); err == nil {
			_, _ = fmt.Fprintln(os.Stdout, p.Addr())
			_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		}
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

func installed(t *testing.T) emulator.SDK {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it starts emulators of its own; other suites start theirs by the same code")
	}
	sdk, err := emulator.Find()
	emulatortest.Needs(t, err)
	return sdk
}

func dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func TestBothEmulatorsStartAnswerAndEndWithStop(t *testing.T) {
	t.Parallel()
	pubsub, firestore := filetest.Both(installed(t).Start(t.Context()))(t)
	for _, p := range []*emulator.Process{pubsub, firestore} {
		require.NoError(t, dial(t.Context(), p.Addr()))
		require.NoError(t, p.Stop())
		require.NoError(t, p.Stop(), "a second Stop does nothing")
		require.Error(t, dial(t.Context(), p.Addr()), "nothing listens any more")
	}
}

func TestAnEmulatorEndsWithItsKilledParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("left out: only Linux ties a process to its parent")
	}
	installed(t)
	command := exec.CommandContext(t.Context(), filetest.Must(os.Executable())(t))
	command.Env = append(os.Environ(), parentVariable+"=1")
	require.NoError(t, filetest.ErrorOf(command.StdinPipe()), "the open pipe makes the parent wait")
	output := filetest.Must(command.StdoutPipe())(t)
	require.NoError(t, command.Start())
	addr := strings.TrimSpace(filetest.Must(bufio.NewReader(output).ReadString('\n'))(t))
	require.NoError(t, dial(t.Context(), addr))
	require.NoError(t, command.Process.Kill())
	require.Error(t, command.Wait())
	ended := func() bool { return dial(t.Context(), addr) != nil }
	require.Eventually(t, ended, 30*time.Second, 10*time.Millisecond)
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	whole := sdkWith(t, pubsubJar, "cloud-firestore-emulator/cloud-firestore-emulator.jar")
	const noFirestore = "has no cloud-firestore-emulator"
	for name, test := range map[string]struct{ path, root, says string }{
		"no Java":                            {t.TempDir(), "", "no java on the PATH"},
		"no gcloud":                          {withJava(t), "", "no gcloud on the PATH"},
		"a Cloud SDK without emulators":      {withJava(t), t.TempDir(), "has no "},
		"a Cloud SDK with Pub/Sub's alone":   {withJava(t), sdkWith(t, pubsubJar), noFirestore},
		"gcloud links to one with Pub/Sub's": {linkTo(t, sdkWith(t, pubsubJar)), "", noFirestore},
		"gcloud links to one with both":      {linkTo(t, whole), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			t.Setenv("CLOUDSDK_ROOT_DIR", "")
			t.Setenv("GOOGLE_CLOUD_SDK", test.root)
			_, err := emulator.Find()
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, emulator.ErrNotInstalled)
			require.ErrorContains(t, err, test.says)
		})
	}
}

const pubsubJar = "pubsub-emulator/lib/cloud-pubsub-emulator-0.8.9-all.jar"

func program(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755))
}

func withJava(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	program(t, filepath.Join(folder, "java"))
	return folder
}

func sdkWith(t *testing.T, jars ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, jar := range jars {
		program(t, filepath.Join(root, "platform", jar))
	}
	return root
}

func linkTo(t *testing.T, root string) string {
	t.Helper()
	folder := withJava(t)
	gcloud := filepath.Join(root, "bin", "gcloud")
	program(t, gcloud)
	require.NoError(t, os.Symlink(gcloud, filepath.Join(folder, "gcloud")))
	return folder
}
