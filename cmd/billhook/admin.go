package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/console"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

// provisioned is what became of each resource.
type provisioned struct {
	Changes []pubsub.Change `json:"changes" show:"Resources"`
}

func (p *program) provision() {
	ofCatalog(p, console.Row{
		Name: "admin provision", Summary: "Create the topics, subscriptions and dead-letter topics of the catalog; safe to repeat",
		Help: "Creates in GOOGLE_CLOUD_PROJECT, on Google Cloud or, with PUBSUB_EMULATOR_HOST, on an emulator, what the\n" +
			"catalog declares, pushing to PUSH_BASE_URL. INSTALLATION stands before each id, if it is set. It changes what differs and\n" +
			"deletes nothing. It goes on after a failure, and tells what became of each resource.",
	}, func(ctx context.Context, c *catalog.Catalog, in ownPools) (provisioned, error) {
		target, err := p.target(in)
		if err != nil {
			return provisioned{}, err
		}
		changes, err := pubsub.Provision(ctx, c, target, p.broker()...)
		failed := 0
		for _, change := range changes {
			if change.Action == pubsub.Failed || change.Action == pubsub.NotTried {
				failed++
			}
		}
		if failed > 0 {
			err = errors.Join(err, fmt.Errorf("%d of %d resources are not as the catalog has them; "+
				"run it again once the reasons are gone", failed, len(changes)))
		}
		return provisioned{changes}, err
	})
}

// ownPools are the workers' URLs and service accounts of pools that have their own.
type ownPools struct {
	URLs     []string `json:"-" query:"pool-urls" help:"the workers of pools that have their own, as pool=https://host, comma-separated"`
	Accounts []string `json:"-" query:"pool-accounts" help:"who pushes to them, as pool=e-mail, comma-separated; else PUSH_SERVICE_ACCOUNT"`
}

// pairs are values by name, of texts such as name=value that a flag has.
func pairs(flag string, texts []string) (map[string]string, error) {
	values := map[string]string{}
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return nil, usageError(fmt.Sprintf("--%s: %s must be formatted as name=value", flag, text))
		}
		values[name] = value
	}
	return values, nil
}

// target is the project and the push endpoints, from the environment and the flags.
func (p *program) target(pools ownPools) (pubsub.Target, error) {
	urls, err := pairs("pool-urls", pools.URLs)
	accounts, wrong := pairs("pool-accounts", pools.Accounts)
	if err := errors.Join(err, wrong); err != nil {
		return pubsub.Target{}, err
	}
	if p.env.PushBaseURL == "" {
		return pubsub.Target{}, usageError("PUSH_BASE_URL must say where the worker is")
	}
	if p.env.PubSubEmulator == "" && (p.env.PushServiceAccount == "" || p.env.PushAudience == "") {
		return pubsub.Target{}, usageError("PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required: the worker refuses pushes without a token")
	}
	of := map[string]pubsub.Pool{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(urls)), slices.Collect(maps.Keys(accounts))) {
		of[name] = pubsub.Pool{URL: urls[name], ServiceAccount: accounts[name]}
	}
	return pubsub.Target{
		Names: p.env.names(), PushBaseURL: p.env.PushBaseURL, Pools: of, PushAudience: p.env.PushAudience,
		PushServiceAccount: p.env.PushServiceAccount, Emulator: p.env.PubSubEmulator != "",
	}, nil
}

func (p *program) broker() []option.ClientOption {
	if p.env.PubSubEmulator == "" {
		return p.google.pubsub
	}
	return pubsub.EmulatorOptions(p.env.PubSubEmulator)
}

type switchFlags struct {
	Queue string `json:"-" query:"id" arg:"queue" validate:"required"`
	ownPools
}

func (p *program) switching() {
	ofCatalog(p, console.Row{
		Name: "admin switch", Summary: "Pause or resume a queue's subscription with your own credentials, as the queue's record says",
		Help: "queues pause and queues resume record what is asked for, and the worker switches the subscription where it was granted that.\n" +
			"Where it was not, this does it with your own credentials, in GOOGLE_CLOUD_PROJECT; to resume, it needs PUSH_BASE_URL, PUSH_AUDIENCE\n" +
			"and PUSH_SERVICE_ACCOUNT as provision does. Run again, it mends what was left half done.",
	}, func(ctx context.Context, c *catalog.Catalog, in switchFlags) (stands pauses.PauseState, err error) {
		if err := p.get(ctx, "/v1/ops/queues/"+url.PathEscape(in.Queue)+"/pause", &stands); err != nil {
			return stands, err
		}
		q, err := queue(c, stands.Queue)
		target := pubsub.Target{Names: p.env.names(), Emulator: p.env.PubSubEmulator != ""}
		if err == nil && stands.Pause == nil {
			target, err = p.target(in.ownPools)
		}
		if err != nil {
			return stands, err
		}
		subscriptions, err := pubsub.NewSwitch(ctx, target, p.broker()...)
		if err != nil {
			return stands, err
		}
		defer func() { _ = subscriptions.Close() }() // what was asked has been answered
		if stands.Pause != nil {
			err = subscriptions.Pause(ctx, q, stands.Pause.At)
		} else {
			err = subscriptions.Resume(ctx, q)
		}
		standing, unread := subscriptions.Standing(ctx, q)
		stands.Subscription = cmp.Or(standing, pause.Unknown)
		return stands, errors.Join(err, unread)
	})
}

type checkFlags struct {
	Folder string `json:"-" query:"folder" arg:"folder"`
}

func (p *program) catalogs() {
	own(p, console.Row{
		Name: "admin catalog check", Summary: "Report every mistake of the catalog at once, with file and line, and what a worker would refuse",
		Help: "Reads the folder's files, else those of CATALOG_DIR, else the built-in catalog. It reports what cannot be read,\n" +
			"relations that do not hold, handlers that no worker has, and contracts that a handler cannot decode, each with file and\n" +
			"line. The exit code is 0 for a sound catalog, 1 for one with mistakes, and 2 where there is no such folder.",
	}, func(_ context.Context, in checkFlags) (checked, error) {
		return p.check(cmp.Or(in.Folder, p.env.CatalogDir))
	})
	ofCatalog(p, console.Row{
		Name: "admin catalog print", Summary: "Print the catalog expanded, as JSON: defaults applied, names derived",
	}, func(_ context.Context, c *catalog.Catalog, _ struct{}) (nothing struct{}, err error) {
		expanded, err := c.JSON()
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, string(expanded))
		}
		return nothing, err
	})
}

// checked is what is wrong with a catalog.
type checked struct {
	Queues   int                `json:"queues"`
	Mistakes []*catalog.Mistake `json:"mistakes"`
	folder   string
}

// Notes are the mistakes, or that there are none.
func (c checked) Notes() (notes []string) {
	for _, m := range c.Mistakes {
		notes = append(notes, m.Error())
	}
	if notes == nil {
		notes = append(notes, fmt.Sprintf("The catalog is sound: %d queues, %s.", c.Queues, cmp.Or(c.folder, "built in")))
	}
	return notes
}

func (p *program) check(folder string) (checked, error) {
	if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
		return checked{}, usageError(folder + " is no folder; name one with the catalog's files")
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
	}
	if err = nil; len(mistakes) > 0 {
		err = fmt.Errorf("catalog check: mistakes: %d", len(mistakes))
	}
	return checked{len(c.Queues), mistakes, folder}, err
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
