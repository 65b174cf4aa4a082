package emulator

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// tie makes the kernel end the emulator when this process is killed. It also gives the emulator
// a process group: Ctrl-C then reaches this process alone, which may still need the emulator to
// drain. The kernel watches the starting thread. Go ends a thread early only where a goroutine
// has locked it, which none here does.
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
