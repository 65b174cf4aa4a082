//go:build !linux

package emulator

import "os/exec"

// dieWithParent does nothing where the kernel cannot tie the two together: there, an
// emulator outlives a parent that was killed.
func dieWithParent(*exec.Cmd) {}
