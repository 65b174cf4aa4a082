package emulator

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// tie makes the kernel end the emulator when this process is killed, and shields it from Ctrl-C, as this
// process may still drain. The kernel watches the starting thread, which Go ends early only if it is locked.
func tie(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// kill ends the process and its children.
func kill(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}
