package e2e

import (
	"context"
	"fmt"
	"path/filepath"
)

// Only tests shut a gate, aim it, and wait for a process to die.

// Aim directs new connections to another target.
func (g *Gate) Aim(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
}

// Shut cuts all connections, and each new one, until it is called with false.
func (g *Gate) Shut(shut bool) {
	g.set(map[bool]int{false: gateOpen, true: gateShut}[shut], shut)
}

// Died waits until the process ends by itself, and returns how it has ended.
func (p *Process) Died(ctx context.Context) (string, error) {
	select {
	case <-p.ended:
		return p.command.ProcessState.String(), nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s still runs: %w", filepath.Base(p.command.Path), ctx.Err())
	}
}
