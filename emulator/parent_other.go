//go:build !linux

package emulator

import (
	"os"
	"os/exec"
)

// tie does nothing: on this system an emulator outlives a parent that was killed.
func tie(*exec.Cmd) {}

// kill ends the process. Java starts no other.
func kill(p *os.Process) error { return p.Kill() }
