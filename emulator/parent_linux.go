package emulator

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the emulator when this process is killed.
// Go may end the thread that started it early only where a goroutine locks it, and
// none here does.
func dieWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
