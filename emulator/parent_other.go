//go:build !linux

package emulator

import (
	"os"
	"os/exec"
)

// tie does nothing: on this system an emulator survives a killed parent.
func tie(*exec.Cmd) {}

// kill ends the process. Java starts no child processes.
func kill(p *os.Process) error { return p.Kill() }
