package worker

import (
	"context"
	"errors"
	"fmt"

	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/dryrun"
)

// trial returns the worker that this one would be with other files of its catalog, for all pools
// and of handlers that know nothing from before. Nothing comes of it: its store takes no writes,
// its publisher no messages, and it has the address and the secret of no target.
func (c Config) trial(files map[string]string) (dryrun.Worker, error) {
	if len(files) > 0 {
		replaced, err := c.Catalog.With(files)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
		}
		c.Catalog = replaced
	}
	c.Pool, c.Store, c.Publisher = "", dryrun.ReadOnly(c.Store), unpublished{}
	c.Backlogs, c.Alarm, c.AfterFunc = nil, byTheMinute{}, nil
	c.Log = c.Log.With("trial", true)
	c.Targets = delivery.Targets{}
	for _, t := range c.Catalog.TargetsOf("") {
		c.Targets[t.Name] = &delivery.Target{} // registered, and never called
	}
	w, err := New(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
	}
	return w.push, nil
}

// unpublished takes no messages.
type unpublished struct{}

func (unpublished) Publish(context.Context, string, contract.Message) (string, error) {
	return "", errors.New("a trial publishes nothing")
}
