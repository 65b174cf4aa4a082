package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

func (p *program) provisionCommand() *cobra.Command {
	var pools poolFlags
	command := &cobra.Command{
		Use:   "provision",
		Short: "Create the topics, subscriptions and dead-letter topics of the catalog; safe to repeat",
		Long: "Creates in GOOGLE_CLOUD_PROJECT, on Google Cloud or, with PUBSUB_EMULATOR_HOST, on an emulator, what the\n" +
			"catalog declares, pushing to PUSH_BASE_URL. INSTALLATION stands before each id, if it is set. It changes what differs and\n" +
			"deletes nothing. It goes on after a failure, and tells what became of each resource.",
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
			p.items(console.Columns[pubsub.Change](), reflect.ValueOf(changes))
			if err := p.printJSON(changes); err != nil {
				return err
			}
			failed := 0
			for _, change := range changes {
				if change.Action == pubsub.Failed || change.Action == pubsub.NotTried {
					failed++
				}
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
	for _, name := range slices.Concat(slices.Collect(maps.Keys(pools.urls)), slices.Collect(maps.Keys(pools.accounts))) {
		own[name] = pubsub.Pool{URL: pools.urls[name], ServiceAccount: pools.accounts[name]}
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

func (p *program) switchCommand() *cobra.Command {
	var pools poolFlags
	command := p.asks(&cobra.Command{
		Use: "switch <queue>", Short: "Pause or resume a queue's subscription with your own credentials, as the queue's record says", Args: cobra.ExactArgs(1),
		Long: "queues pause and queues resume record what is asked for, and the worker switches the subscription where it was granted that.\n" +
			"Where it was not, this does it with your own credentials, in GOOGLE_CLOUD_PROJECT; to resume, it needs PUSH_BASE_URL, PUSH_AUDIENCE\n" +
			"and PUSH_SERVICE_ACCOUNT as provision does. Run again, it mends what was left half done.",
		RunE: func(command *cobra.Command, args []string) error {
			read, _ := p.known.Find("pauses show")
			var stands pause.State
			if err := p.get(command.Context(), read.URL(console.Input{Path: map[string]string{"id": args[0]}}), &stands); err != nil {
				return err
			}
			return errors.Join(p.switchTo(command.Context(), &stands, pools), show(p, stands))
		},
	})
	pools.add(command)
	return command
}

// switchTo has a queue's subscription do what its record says, and notes what it does then.
func (p *program) switchTo(ctx context.Context, stands *pause.State, pools poolFlags) error {
	c, err := p.catalog()
	if err != nil {
		return err
	}
	q, err := queue(c, stands.Queue)
	target := pubsub.Target{Names: p.env.names(), Emulator: p.env.PubSubEmulator != ""}
	if err == nil && stands.Pause == nil {
		target, err = p.target(pools)
	}
	if err != nil {
		return err
	}
	subscriptions, err := pubsub.NewSwitch(ctx, target, p.broker()...)
	if err != nil {
		return err
	}
	defer func() { _ = subscriptions.Close() }() // what was asked has been answered
	if stands.Pause != nil {
		err = subscriptions.Pause(ctx, q, stands.Pause.At)
	} else {
		err = subscriptions.Resume(ctx, q)
	}
	standing, unread := subscriptions.Standing(ctx, q)
	stands.Subscription = cmp.Or(standing, pause.Unknown)
	return errors.Join(err, unread)
}

func (p *program) catalogCommand() *cobra.Command {
	command := &cobra.Command{Use: "catalog", Short: "Check or print the declaration of queues, products and sources in a folder"}
	command.AddCommand(&cobra.Command{
		Use: "check [folder]", Short: "Report every mistake of the catalog at once, with file and line, and what a worker would refuse", Args: cobra.MaximumNArgs(1),
		Long: "Reads the folder's files, else those of CATALOG_DIR, else the built-in catalog. It reports what cannot be read,\n" +
			"relations that do not hold, handlers that no worker has, and contracts that a handler cannot decode, each with file and\n" +
			"line. The exit code is 0 for a sound catalog, 1 for one with mistakes, and 2 where there is no such folder.",
		RunE: func(_ *cobra.Command, args []string) error { return p.checkCatalog(append(args, p.env.CatalogDir)[0]) },
	}, &cobra.Command{
		Use: "print", Short: "Print the catalog expanded, as JSON: defaults applied, names derived", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			expanded, err := c.JSON()
			if err == nil {
				_, err = fmt.Fprintln(p.stdout, string(expanded))
			}
			return err
		},
	})
	return command
}

func (p *program) checkCatalog(folder string) error {
	if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
		return usageError(folder + " is no folder; name one with the catalog's files")
	}
	c, err := catalog.Load(folder)
	mistakes := catalog.Mistakes(err)
	mistakes = append(mistakes, refusedHandlers(c, mistakes)...)
	if err == nil {
		_, err = c.Only(p.env.Queues)
		mistakes = append(mistakes, catalog.Mistakes(err)...)
	}
	slices.SortStableFunc(mistakes, catalog.ByLine)
	for _, m := range mistakes {
		if folder != "" && m.File != "" {
			m.File = filepath.Join(folder, m.File)
		}
		p.printf("%s\n", m)
	}
	err = p.printJSON(map[string]any{"queues": len(c.Queues), "mistakes": mistakes})
	if n := len(mistakes); n > 0 {
		return errors.Join(err, fmt.Errorf("catalog check: mistakes: %d", n))
	}
	p.printf("The catalog is sound: %d queues, %s.\n", len(c.Queues), cmp.Or(folder, "built in"))
	return err
}

// refusedHandlers is what a worker would refuse of the catalog, but on lines that have a mistake already: it would follow
// from that. A worker whose contracts cannot be read would refuse everything.
func refusedHandlers(c *catalog.Catalog, known []*catalog.Mistake) []*catalog.Mistake {
	if c.Contracts == nil {
		return nil
	}
	named := *c // an entry without an id has its mistake already
	named.Queues = slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool { return q.ID == "" })
	return slices.DeleteFunc(catalog.Mistakes(worker.Check(&named, "")), func(m *catalog.Mistake) bool {
		return slices.ContainsFunc(known, func(k *catalog.Mistake) bool {
			return k.File == m.File && k.Line == m.Line && (m.Line > 0 || k.Error() == m.Error())
		})
	})
}
