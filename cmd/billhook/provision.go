package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"billhook/internal/platform/gcp/pubsub"
)

func (p *program) provisionCommand() *cobra.Command {
	var pools poolFlags
	command := &cobra.Command{
		Use:   "provision",
		Short: "Create topics, subscriptions and dead letters from the catalog; again and again without harm",
		Long: "Creates in GOOGLE_CLOUD_PROJECT, on Google Cloud or, with PUBSUB_EMULATOR_HOST, on an emulator, what the\n" +
			"catalog declares, pushing to PUSH_BASE_URL. INSTALLATION stands before each id, if it is set. It changes what differs and deletes nothing. It goes on after a failure, and\n" +
			"tells what became of each resource.",
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
			changes, err := pubsub.Provision(command.Context(), c, target, p.broker()...)
			if len(changes) == 0 && err != nil {
				return err
			}
			rows, failed := [][]string{}, 0
			for _, change := range changes {
				rows = append(rows, row(change.Action, change.Kind, change.ID, change.Error))
				if change.Action == pubsub.Failed || change.Action == pubsub.NotTried {
					failed++
				}
			}
			p.table([]string{"ACTION", "KIND", "ID", "WHY"}, rows, nil)
			if slices.ContainsFunc(changes, func(c pubsub.Change) bool { return c.Action == pubsub.Kept || c.Action == pubsub.SwitchedOff }) {
				p.printf("Queues that do not run keep their subscriptions, and what waits there: `billhook queues ls` says how much.\n" +
					"Nothing of it is handled until they run again, and nothing is deleted here.\n")
			}
			if err := p.printJSON(changes); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d resources are not as the catalog has them; run it again once the reasons are gone", failed, len(changes))
			}
			return err
		},
	}
	pools.add(command)
	return command
}

// poolFlags are the workers' URLs and service accounts of pools that have their own.
type poolFlags struct{ urls, accounts map[string]string }

func (f *poolFlags) add(command *cobra.Command) {
	command.Flags().StringToStringVar(&f.urls, "pool-urls", nil, "the workers of pools that have their own, as pool=https://host, comma-separated")
	command.Flags().StringToStringVar(&f.accounts, "pool-accounts", nil, "who pushes to them, as pool=e-mail, comma-separated; else PUSH_SERVICE_ACCOUNT")
}

// target is the project and the push endpoints, from the environment and the flags.
func (p *program) target(pools poolFlags) (pubsub.Target, error) {
	if p.env.PushBaseURL == "" {
		return pubsub.Target{}, usageError("PUSH_BASE_URL must say where the worker is")
	}
	if p.env.PubSubEmulator == "" && (p.env.PushServiceAccount == "" || p.env.PushAudience == "") {
		return pubsub.Target{}, usageError("PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required: the worker refuses pushes without a token")
	}
	own := map[string]pubsub.Pool{}
	for name, address := range pools.urls {
		own[name] = pubsub.Pool{URL: address, ServiceAccount: pools.accounts[name]}
	}
	for name, account := range pools.accounts {
		own[name] = pubsub.Pool{URL: pools.urls[name], ServiceAccount: account}
	}
	return pubsub.Target{
		Names: p.env.names(), PushBaseURL: p.env.PushBaseURL, Pools: own, PushAudience: p.env.PushAudience,
		PushServiceAccount: p.env.PushServiceAccount, Emulator: p.env.PubSubEmulator != "",
	}, nil
}

func (p *program) broker() []option.ClientOption {
	if p.env.PubSubEmulator == "" {
		return p.google.pubsub
	}
	return pubsub.EmulatorOptions(p.env.PubSubEmulator)
}
