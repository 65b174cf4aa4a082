package main

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever meets a port in use is told what to type.
func TestAPortInUseIsToldWithTheFlagThatChangesIt(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for _, of := range []string{"webhook", "worker", "service"} {
		args := []string{"dev", "--no-samples"}
		for _, other := range []string{"webhook", "worker", "service"} {
			number := "0"
			if other == of {
				number = port
			}
			args = append(args, "--"+other+"-port", number)
		}
		var out strings.Builder
		flag := "--" + of + "-port"
		require.EqualError(t, run(t.Context(), args, func(string) string { return "" }, &out),
			flag+": port "+port+" is in use: another program listens there; "+flag+` 0 chooses a free one (make run ARGS="`+flag+` 0")`)
	}
}

// The flags that dev names reach it through make, and a terminal's colours stay out of a file.
func TestMakePassesArgumentsOnAndHeedsNoColor(t *testing.T) {
	t.Parallel()
	ask := func(args ...string) string {
		command := exec.CommandContext(t.Context(), "make", args...)
		command.Dir = filepath.Join("..", "..")
		command.Env = append(command.Environ(), "NO_COLOR=1")
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	for _, target := range []string{"run", "emulators"} {
		require.Contains(t, ask("--dry-run", target, "ARGS=--worker-port 0 --no-samples"), " --worker-port 0 --no-samples\n")
	}
	help := ask("help")
	require.NotContains(t, help, "\x1b")
	require.Contains(t, help, `ARGS="--worker-port 0"`)
}
