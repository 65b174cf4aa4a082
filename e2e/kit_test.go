package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
)

// Only tests shut a gate, aim it, and wait for a process to die.

// Aim leads new connections to another target.
func (g *Gate) Aim(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
}

// Shut cuts every connection, and every new one.
func (g *Gate) Shut() { g.set(gateShut, true) }

// Died waits until the process ends by itself, and returns the signal that ended it; 0: none.
func (p *Process) Died(ctx context.Context) (syscall.Signal, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s lives: %w", filepath.Base(p.command.Path), ctx.Err())
	}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, nil
	}
	return status.Signal(), nil
}
