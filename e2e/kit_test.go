package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
func (g *Gate) Shut() {
	g.set(gateShut)
	g.cut()
}

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

// BuildOnce is Build. After KeepBuilds it compiles each set of tags once; later builds are links to the first.
func BuildOnce(ctx context.Context, folder string, tags ...string) error {
	built.Lock()
	defer built.Unlock()
	if built.folder == "" {
		return Build(ctx, folder, tags...)
	}
	kept := filepath.Join(built.folder, "tags "+strings.Join(tags, " "))
	if !built.with[kept] {
		if err := Build(ctx, kept, tags...); err != nil {
			return err
		}
		built.with[kept] = true
	}
	for _, service := range services {
		if err := os.Link(filepath.Join(kept, service), filepath.Join(folder, service)); err != nil {
			return fmt.Errorf("build the services: %w", err)
		}
	}
	return nil
}

// built holds the builds of this process after KeepBuilds.
var built struct {
	sync.Mutex
	folder string
	with   map[string]bool
}

// KeepBuilds keeps what BuildOnce compiles until remove is called.
func KeepBuilds() (remove func() error, err error) {
	built.Lock()
	defer built.Unlock()
	if built.folder != "" {
		return nil, errors.New("e2e: builds are kept already")
	}
	if built.folder, err = os.MkdirTemp("", "billhook-e2e-"); err != nil {
		return nil, err
	}
	built.with = map[string]bool{}
	return func() error { return os.RemoveAll(built.folder) }, nil
}
