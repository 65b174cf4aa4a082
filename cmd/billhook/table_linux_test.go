package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestATerminalHasItsOwnWidthAndColoursUnlessTheyAreNotWanted(t *testing.T) {
	t.Parallel()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine makes no terminals:", err)
	}
	t.Cleanup(func() { require.NoError(t, master.Close()) })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, terminal.Close()) })
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 132}))
	for name, test := range map[string]struct {
		environment map[string]string
		want        screen
	}{
		"as it is":        {nil, screen{132, true}},
		"NO_COLOR":        {map[string]string{"NO_COLOR": "1"}, screen{132, false}},
		"a dumb terminal": {map[string]string{"TERM": "dumb"}, screen{132, false}},
		"COLUMNS":         {map[string]string{"COLUMNS": "70"}, screen{70, true}},
	} {
		require.Equal(t, test.want, screenOf(terminal, func(variable string) string { return test.environment[variable] }), name)
	}
}
