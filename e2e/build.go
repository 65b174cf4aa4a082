package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// services are the binaries that Build makes.
var services = []string{"webhook", "worker"}

// Build compiles the services into a folder. Without tags the binaries are those of production.
// With the tag failpoints, FAILPOINT ends a service at a fail point.
func Build(ctx context.Context, folder string, tags ...string) error {
	built.Lock()
	defer built.Unlock()
	if built.folder == "" {
		return compile(ctx, folder, tags)
	}
	kept := filepath.Join(built.folder, "tags "+strings.Join(tags, " "))
	if !built.with[kept] {
		if err := compile(ctx, kept, tags); err != nil {
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

// KeepBuilds makes Build compile each set of tags once. Later builds are links to the first.
// remove removes the builds.
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

func compile(ctx context.Context, folder string, tags []string) error {
	// Symbols are left out, as in the images: linking them takes half of the time.
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-tags", strings.Join(tags, ","), "-o", folder+string(filepath.Separator))
	for _, service := range services {
		build.Args = append(build.Args, "billhook/cmd/"+service)
	}
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}
