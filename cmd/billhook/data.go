package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"billhook/internal/platform/standin"
)

type data struct {
	folder string
	// kept: the folder stays, and the next dev continues with its state. Otherwise the folder
	// is temporary.
	kept bool
	// reused: an earlier dev has left its state in the folder.
	reused bool
}

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
		d.reused = true
	}
	// This check comes before the ports are opened: its error tells more than "address in use".
	documents, err := standin.OpenStore(d.store())
	if errors.Is(err, standin.ErrInUse) {
		return d, fmt.Errorf("--data: another billhook dev is using %s: end it, or name another folder", asked)
	}
	if err != nil {
		return d, fmt.Errorf("--data: %w", err)
	}
	return d, documents.Close()
}

func (d data) store() string { return filepath.Join(d.folder, "store.db") }

func (d data) broker() string {
	if !d.kept {
		return ""
	}
	return filepath.Join(d.folder, "broker.json")
}

func (d data) remove() error {
	if d.kept {
		return nil
	}
	return os.RemoveAll(d.folder)
}

func (d data) describe(p *program, found standin.Loaded, lease time.Duration) {
	switch {
	case !d.kept:
		return
	case !d.reused:
		p.printf("Its state is kept in %s: documents, and messages that wait for delivery.\n", d.folder)
	default:
		p.printf("It goes on with the state in %s; messages that wait for delivery: %d.\n", d.folder, found.Waiting)
	}
	if found.Waiting > 0 {
		p.printf("What a killed run had in hand is taken up once its lease is over, at most %s after its claim.\n", lease)
	}
	if found.Gone > 0 {
		p.printf("%d messages of queues that are not there any more are gone.\n", found.Gone)
	}
}
