package main

import (
	"errors"

	"github.com/spf13/cobra"

	"billhook/internal/gcp/pubsub"
)

func (p *program) provisionCommand() *cobra.Command {
	var pools map[string]string
	command := &cobra.Command{
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
			target, err := p.target(pools)
			if err != nil {
				return err
			}
			changes, err := pubsub.Provision(command.Context(), c, target)
			for _, change := range changes {
				p.printf("%-9s  %-12s  %s\n", change.Action, change.Kind, change.ID)
			}
			if err != nil {
				return err
			}
			return p.printJSON(changes)
		},
	}
	poolURLs(command, &pools)
	return command
}

// poolURLs adds the flag that names the workers of pools that have their own.
func poolURLs(command *cobra.Command, pools *map[string]string) {
	command.Flags().StringToStringVar(pools, "pool-urls", nil, "the workers of pools that have their own, as pool=https://host, comma-separated")
}

// target is what the environment says of the project and of whom it pushes to.
func (p *program) target(pools map[string]string) (pubsub.Target, error) {
	if p.env.PushBaseURL == "" {
		return pubsub.Target{}, errors.New("PUSH_BASE_URL must say where the worker is")
	}
	if p.env.PubSubEmulator == "" && (p.env.PushServiceAccount == "" || p.env.PushAudience == "") {
		return pubsub.Target{}, errors.New("PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required: the worker refuses pushes without a token")
	}
	return pubsub.Target{
		ProjectID: p.env.Project, PushBaseURL: p.env.PushBaseURL, PoolURLs: pools, PushAudience: p.env.PushAudience,
		PushServiceAccount: p.env.PushServiceAccount, Emulator: p.env.PubSubEmulator != "",
	}, nil
}
