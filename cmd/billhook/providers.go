package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/ingest/webhook"
)

type ofProvider struct {
	Provider string `json:"-" query:"provider" arg:"provider" validate:"required"`
}

func (o ofProvider) provider(c *catalog.Catalog) (catalog.Provider, error) {
	err := oneOf(slices.Sorted(maps.Keys(c.Providers)), &o.Provider)
	return c.Providers[o.Provider], err
}

type tryFlags struct {
	ofProvider
	File string `json:"-" query:"file" validate:"required" help:"the body of a webhook, - for standard input"`
	Read string `json:"-" query:"read" help:"what the provider's API says of it, in a file, where the event reads there"`
}

func (p *program) try() {
	ofCatalog(p, console.Row{
		Name: "providers try", Summary: "Show what would leave ingest of a provider's webhook, what is dropped and why",
		Help: "It runs the mapping of catalog/providers/<provider>.yaml on this machine: no signature is checked, and nothing is sent.",
	}, func(_ context.Context, c *catalog.Catalog, in tryFlags) (trial webhook.Trial, err error) {
		of, unknown := in.provider(c)
		body, unread := p.readFile(in.File)
		read, err := p.readFile(in.Read)
		if err = errors.Join(unknown, unread, err); err != nil {
			return trial, err
		}
		if in.Read != "" {
			body = webhook.Beside(body, read)
		}
		made, err := webhook.Try(c, of, body, time.Now)
		if err != nil {
			return trial, fmt.Errorf("the webhook would be refused: %w", err)
		}
		return *made, nil
	})
}

// listening says where dev takes a provider's webhooks, and what brings them there.
type listening struct {
	URL   string   `json:"url"`
	Steps []string `json:"steps"`
}

func (p *program) listen() {
	ofCatalog(p, console.Row{
		Name: "listen", Summary: "Say where dev takes a provider's webhooks, and the steps that bring its test events there",
	}, func(_ context.Context, c *catalog.Catalog, in ofProvider) (said listening, err error) {
		of, err := in.provider(c)
		if err != nil {
			return said, err
		}
		source, declaration := c.SourceOf(of)
		if declaration != "" {
			said.Steps = append(said.Steps, "Add to catalog/sources.yaml, under sources:\n"+declaration)
		}
		path := "/webhooks/" + source.Name
		said.URL = p.env.Webhook + path
		said.Steps = append(said.Steps, "Start dev with the provider's secret: CATALOG_DIR=catalog "+source.SecretVariable+"=... bin/billhook dev",
			"Have a tunnel of yours lead to "+p.env.Webhook+", such as: cloudflared tunnel --url "+p.env.Webhook)
		for _, step := range of.Setup {
			said.Steps = append(said.Steps, strings.NewReplacer("{url}", "https://<your tunnel>"+path, "{local}", said.URL).Replace(step))
		}
		said.Steps = append(said.Steps, "See what came: bin/billhook events ls")
		p.printf("dev takes the webhooks of %s at %s\n\n", of.Name, said.URL)
		for i, step := range said.Steps {
			p.printf("%d. %s\n", i+1, laidOut(step))
		}
		return said, nil
	})
}
