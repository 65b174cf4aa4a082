package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"

	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
)

type ofFile struct {
	File string `json:"-" query:"kept" arg:"file" validate:"required"`
}

type proofFlags struct {
	ofFile
	Seals string `json:"-" query:"seals" validate:"required" help:"a file with seals that were kept elsewhere; required"`
}

func (p *program) books() {
	own(p, console.Row{Name: "ledger compare"},
		func(ctx context.Context, in ofFile) (found seal.Comparison, err error) {
			kept, err := p.readSeals(in.File)
			if err != nil {
				return found, err
			}
			var now []seal.Seal
			list, _ := known().Find("seals ls")
			all := console.Input{Query: url.Values{"all": {"true"}}}
			_, err = p.pages(ctx, list, all, 0, func(items reflect.Value) {
				now = append(now, items.Interface().([]seal.Seal)...) //nolint:forcetypeassert // the row lists seals
			})
			if err != nil {
				return found, err
			}
			return seal.Compare(kept, now), nil
		})
	own(p, console.Row{Name: "ledger check-proof"}, func(_ context.Context, in proofFlags) (seal.Proven, error) {
		text, unread := p.readFile(in.File)
		kept, err := p.readSeals(in.Seals)
		if err := errors.Join(unread, err); err != nil {
			return seal.Proven{}, err
		}
		var printed seal.Proof
		if json.Unmarshal(text, &printed) == nil && printed.Proof != "" {
			text = []byte(printed.Proof)
		}
		return seal.CheckProof(text, kept)
	})
}

// readSeals reads a file of seals.
func (p *program) readSeals(file string) (seals []seal.Seal, err error) {
	text, err := p.readFile(file)
	if err != nil {
		return nil, err
	}
	if seals, err = seal.Read(text); err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return seals, err
}
