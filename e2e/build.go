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

// Build compiles the services into a folder. Without tags it is what production runs:
// no test hook is compiled in. With the tag failpoints, a service dies where FAILPOINT
// says.
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

// built are the builds of this process, where they are kept.
var built struct {
	sync.Mutex
	folder string
	with   map[string]bool
}

// KeepBuilds has Build compile the services once for each set of tags, and later only
// name them in the folders that ask for them. It returns what removes the builds.
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
	// No symbols, as in the images: linking them takes half of the time.
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-tags", strings.Join(tags, ","), "-o", folder+string(filepath.Separator))
	for _, service := range services {
		build.Args = append(build.Args, "billhook/cmd/"+service)
	}
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}
