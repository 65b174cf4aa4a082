package failpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

func TestAFailpointEndsTheProcessOnlyInACrashBuild(t *testing.T) {
	t.Parallel()
	build := func(tags string) string {
		program := filepath.Join(t.TempDir(), "crash")
		output, err := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", program,
			"./testdata/crash").CombinedOutput()
		require.NoError(t, err, string(output))
		return program
	}
	with, without := build("failpoints"), build("")
	const all = "first again again again last "
	type row struct {
		program, variable, says string
		killed                  bool
	}
	filetest.Each(t, map[string]row{
		"at the first hit":               {with, "FAILPOINT=first", "", true},
		"at its own name":                {with, "FAILPOINT=last", "first again again again ", true},
		"before a later name":            {with, "FAILPOINT=again", "first ", true},
		"at the hit with the number":     {with, "FAILPOINT=again:3", "first again again ", true},
		"not with fewer hits":            {with, "FAILPOINT=again:4", all, false},
		"not at the prefix of a name":    {with, "FAILPOINT=agai", all, false},
		"not with an empty variable":     {with, "FAILPOINT=", all, false},
		"not in a build without the tag": {without, "FAILPOINT=first", all, false},
	}, func(t *testing.T, test row) {
		command := exec.CommandContext(t.Context(), test.program)
		command.Env = append(os.Environ(), test.variable)
		output, err := command.Output()
		require.Equal(t, test.says, string(output))
		if !test.killed {
			require.NoError(t, err)
			return
		}
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		status, ok := exit.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		require.Equal(t, syscall.SIGKILL, status.Signal(), "nothing is cleaned up, as in a crash")
	})
}
