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
	const pubsub = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.9-all.jar"
	const firestore = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
	// linkTo is a folder with Java, and a link to the gcloud of a Cloud SDK.
	linkTo := func(sdk string) string {
		folder := folderWith(t, "java")
		require.NoError(t, os.Symlink(filepath.Join(sdk, "bin", "gcloud"), filepath.Join(folder, "gcloud")))
		return folder
	}
	const noFirestore = "has no cloud-firestore-emulator"
	for name, test := range map[string]struct{ path, root, says string }{
		"no Java":                            {t.TempDir(), "", "no java on the PATH"},
		"no gcloud":                          {folderWith(t, "java"), "", "no gcloud on the PATH"},
		"a Cloud SDK without emulators":      {folderWith(t, "java"), t.TempDir(), "has no "},
		"a Cloud SDK with Pub/Sub's alone":   {folderWith(t, "java"), folderWith(t, pubsub), noFirestore},
		"gcloud links to one with Pub/Sub's": {linkTo(folderWith(t, "bin/gcloud", pubsub)), "", noFirestore},
		"gcloud links to one with both":      {linkTo(folderWith(t, "bin/gcloud", pubsub, firestore)), "", ""},
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

func folderWith(t *testing.T, programs ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, program := range programs {
		path := filepath.Join(folder, program)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	}
	return folder
}
