package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"billhook/internal/embedded"
	"billhook/internal/ops"
)

// data is where dev keeps its state.
type data struct {
	folder string
	// kept: the folder stays, and the next dev on it goes on where this one ends; else it
	// is a temporary one.
	kept bool
	// again: an earlier dev has left its state in it.
	again bool
}

// openData makes the folder that was asked for, or a temporary one. It fails where another
// process keeps its state there.
func openData(asked string) (d data, err error) {
	if asked == "" {
		d.folder, err = os.MkdirTemp("", "billhook-dev-")
		if err != nil {
			return d, fmt.Errorf("dev: %w", err)
		}
		return d, nil
	}
	d = data{folder: asked, kept: true}
	if err := os.MkdirAll(asked, 0o700); err != nil {
		return d, fmt.Errorf("--data: %w", err)
	}
	if _, err := os.Stat(d.store()); err == nil {
		d.again = true
	}
	// Asked before anything else is, so that nobody is told of a port that is taken instead.
	documents, err := embedded.OpenStore(d.store())
	if errors.Is(err, embedded.ErrInUse) {
		return d, fmt.Errorf("--data: another billhook dev is using %s: end it, or name another folder", asked)
	}
	if err != nil {
		return d, fmt.Errorf("--data: %w", err)
	}
	return d, documents.Close()
}

func (d data) store() string { return filepath.Join(d.folder, "store.db") }

// broker is where messages wait from one dev to the next; empty where they do not.
func (d data) broker() string {
	if !d.kept {
		return ""
	}
	return filepath.Join(d.folder, "broker.json")
}

// leave removes a temporary folder.
func (d data) leave() error {
	if d.kept {
		return nil
	}
	return os.RemoveAll(d.folder)
}

// tell says what becomes of the state, and what was found of an earlier run.
func (d data) tell(p *program, found embedded.Loaded) {
	switch {
	case !d.kept:
		return
	case !d.again:
		p.printf("Its state is kept in %s: documents at once, messages that wait for delivery when it ends with Ctrl-C.\n", d.folder)
	default:
		p.printf("It goes on with the state in %s: %d messages wait for delivery.\n", d.folder, found.Waiting)
	}
	if found.Gone > 0 {
		p.printf("%d messages of queues that are not there any more are gone.\n", found.Gone)
	}
}

// shown reports whether an earlier run has sent the samples.
func (s *showing) shown(ctx context.Context) bool {
	var event ops.Event
	return s.ask.get(ctx, "/v1/ops/events/"+firstSample, &event) == nil
}
