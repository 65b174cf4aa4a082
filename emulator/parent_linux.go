package emulator

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// tie makes the kernel end the emulator when this process is killed, and gives it a
// process group: Ctrl-C then reaches this process alone, which may still need it to
// drain. The kernel watches the thread that starts it; Go ends a thread early only
// where a goroutine locked it, and none here does.
func tie(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// kill ends the process and all that it started.
func kill(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}
