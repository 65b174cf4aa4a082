package main

import (
	"errors"

	"github.com/spf13/cobra"

	"billhook/internal/gcp/pubsub"
)

func (p *program) provisionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "provision",
		Short: "Create topics, subscriptions and dead letters from the catalog; again and again without harm",
		Long: "Creates in GOOGLE_CLOUD_PROJECT, on Google Cloud or, with PUBSUB_EMULATOR_HOST, on an emulator, what the\n" +
			"catalog declares, pushing to PUSH_BASE_URL. It changes what differs and deletes nothing.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			if p.env.PushBaseURL == "" {
				return errors.New("PUSH_BASE_URL must say where the worker is")
			}
			if p.env.PubSubEmulator == "" && (p.env.PushServiceAccount == "" || p.env.PushAudience == "") {
				return errors.New("PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required: the worker refuses pushes without a token")
			}
			changes, err := pubsub.Provision(command.Context(), c, pubsub.Target{
				ProjectID: p.env.Project, PushBaseURL: p.env.PushBaseURL, PushAudience: p.env.PushAudience,
				PushServiceAccount: p.env.PushServiceAccount, Emulator: p.env.PubSubEmulator != "",
			})
			for _, change := range changes {
				p.printf("%-9s  %-12s  %s\n", change.Action, change.Kind, change.ID)
			}
			if err != nil {
				return err
			}
			return p.printJSON(changes)
		},
	}
}
