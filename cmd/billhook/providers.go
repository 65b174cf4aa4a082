package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/ingest/webhook"
)

// provider is the one of that name, with the catalog.
func (p *program) provider(name string) (*catalog.Catalog, catalog.Provider, error) {
	c, err := p.catalog()
	if err == nil {
		err = oneOf(slices.Sorted(maps.Keys(c.Providers)), &name)
	}
	if err != nil {
		return nil, catalog.Provider{}, err
	}
	return c, c.Providers[name], nil
}

func (p *program) providersTry() *cobra.Command {
	file, answer := "", ""
	command := &cobra.Command{
		Use: "try <provider>", Short: "Show what would leave ingest of a provider's webhook, what is dropped and why", Args: cobra.ExactArgs(1),
		Long: "It runs the mapping of catalog/providers/<provider>.yaml on this machine: no signature is checked, and nothing is sent.",
		RunE: func(command *cobra.Command, args []string) error {
			c, of, err := p.provider(args[0])
			if err != nil {
				return err
			}
			body, err := readFile(file, command.InOrStdin())
			if err != nil {
				return err
			}
			if answer != "" {
				read, err := readFile(answer, command.InOrStdin())
				if err != nil {
					return err
				}
				body = webhook.Beside(body, read)
			}
			trial, err := webhook.Try(c, of, body, time.Now)
			if err != nil {
				return fmt.Errorf("the webhook would be refused: %w", err)
			}
			var message bytes.Buffer
			if err := json.Indent(&message, trial.Message, "", "  "); err == nil {
				p.printf("%s\n\n", own(message.String()))
			}
			return show(p, *trial)
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "the body of a webhook, - for standard input")
	command.Flags().StringVar(&answer, "read", "", "what the provider's API says of it, in a file, where the event reads there")
	_ = command.MarkFlagRequired("file") // it is there
	return command
}

// listening says where dev takes a provider's webhooks, and what brings them there.
type listening struct {
	URL   string   `json:"url"`
	Steps []string `json:"steps"`
}

func (p *program) listenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "listen <provider>", Short: "Say where dev takes a provider's webhooks, and the steps that bring its test events there", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, of, err := p.provider(args[0])
			if err != nil {
				return err
			}
			source := catalog.Source{Name: of.Name, SecretVariable: "WEBHOOK_SECRET_" + strings.ToUpper(strings.ReplaceAll(of.Name, "-", "_"))}
			said := listening{}
			sends := func(s catalog.Source) bool { return s.Scheme == catalog.Scheme(of.Name) }
			if all := slices.Collect(maps.Values(c.Sources)); slices.ContainsFunc(all, sends) {
				source = all[slices.IndexFunc(all, sends)]
			} else {
				said.Steps = append(said.Steps, "Add to catalog/sources.yaml, under sources:\n"+declared(c, of, source))
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
				p.printf("%d. %s\n", i+1, own(step))
			}
			return p.printJSON(said)
		},
	}
}

// declared is the source that a provider needs, with each of its events to the first queue that handles it.
func declared(c *catalog.Catalog, of catalog.Provider, source catalog.Source) string {
	text := fmt.Sprintf("  %s:\n    scheme: %s\n    secret_variable: %s\n    max_body_bytes: 1048576\n    rate_per_second: 100\n    burst: 200\n    events:\n", source.Name, of.Name, source.SecretVariable)
	for _, eventType := range slices.Sorted(maps.Keys(of.Events)) {
		for _, q := range c.Queues {
			if _, handled := q.Handler(of.Events[eventType].Type); handled && q.Enabled && q.Contract == of.Contract {
				text += "      " + eventType + ": " + q.ID + "\n"
				break
			}
		}
	}
	return text
}
