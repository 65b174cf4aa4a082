// Command billhook is the command line of Billhook. It runs a whole Billhook in one process, sends signed
// webhooks, provisions Pub/Sub, and calls a running worker.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("billhook", func(ctx context.Context) error {
		p, err := newProgram(os.Getenv, os.Stdout)
		if err != nil {
			return err
		}
		return p.execute(ctx, os.Args[1:])
	})
}

type program struct {
	env    environment
	getenv func(string) string
	stdout io.Writer
	// stdin is the standard input; nil: the process's.
	stdin io.Reader
	// width is how many characters a line may have; 0, as with --wide: tables show all columns.
	width int
	// output is how an answer is printed: asTable, asJSON or asCSV.
	output string
	// codes: a code, such as a state or a reason, was printed. explained: so was the page that explains it.
	codes, explained bool
	// root is the parent of all commands. runs: one of them was called correctly, and began to run.
	root   *cobra.Command
	runs   bool
	google google
	// load is catalog.Load, after is time.After, and decode, for the worker's answers, is json.Unmarshal.
	load   func(dir string) (*catalog.Catalog, error)
	after  func(time.Duration) <-chan time.Time
	decode func(answer []byte, into any) error
}

// google has the options of the clients of Google's APIs. Without options, the libraries find the addresses
// and the credentials.
type google struct{ pubsub, rest []option.ClientOption }

type environment struct {
	Project            string     `env:"GOOGLE_CLOUD_PROJECT" envDefault:"billhook-dev"`
	Installation       string     `env:"INSTALLATION"`
	CatalogDir         string     `env:"CATALOG_DIR"`
	Queues             []string   `env:"QUEUES"`
	TasksPool          string     `env:"TASKS_POOL"`
	PubSubEmulator     string     `env:"PUBSUB_EMULATOR_HOST"`
	PushBaseURL        string     `env:"PUSH_BASE_URL"`
	PushAudience       string     `env:"PUSH_AUDIENCE"`
	PushServiceAccount string     `env:"PUSH_SERVICE_ACCOUNT"`
	Server             string     `env:"BILLHOOK_SERVER" envDefault:"http://127.0.0.1:8081"`
	Webhook            string     `env:"BILLHOOK_WEBHOOK" envDefault:"http://127.0.0.1:8080"`
	OpsToken           env.Secret `env:"OPS_TOKEN"`
	OpsOperator        string     `env:"OPS_OPERATOR"`
	// ProxyToken is for Identity-Aware Proxy, which is in front of the API and removes it.
	ProxyToken env.Secret `env:"IAP_TOKEN"`
}

func (e environment) Check() error { return e.names().Check() }

func (e environment) names() pubsub.Names {
	return pubsub.Names{ProjectID: e.Project, Installation: e.Installation}
}

func newProgram(getenv func(string) string, stdout io.Writer) (*program, error) {
	environment, err := env.Parse[environment](getenv)
	if err != nil {
		return nil, err
	}
	return &program{
		env: environment, getenv: getenv, stdout: stdout, output: asTable, width: screen.Width(stdout, getenv),
		load: catalog.Load, after: time.After, decode: json.Unmarshal,
	}, nil
}

// execute runs a command.
func (p *program) execute(ctx context.Context, args []string) error {
	root := p.commands()
	root.SetIn(p.stdin)
	root.SetArgs(append([]string{}, args...)) // for nil Cobra would take the process's
	command, err := root.ExecuteContextC(ctx)
	if p.codes && !p.explained {
		p.printf("What a code means: %s\n", reasonsPage)
	}
	if err != nil {
		return p.failure(command, err)
	}
	return nil
}

// known returns the operations, which are slow to build and never change.
var known = sync.OnceValue(func() *console.Catalog { return operations.All(operations.Apps{}) })

func (p *program) commands() *cobra.Command {
	build := serve.BuildOf()
	root := &cobra.Command{
		Use: "billhook",
		Short: "Billing events on Google Cloud: nothing lost, nothing doubled, no personal data past the " +
			"webhook service",
		SilenceUsage: true, SilenceErrors: true, DisableSuggestions: true, // grouped suggests
		Version: fmt.Sprintf("%s, commit %s, %s", build.Version, build.Commit, build.Go),
	}
	flags := root.PersistentFlags()
	const forms = "print a `table`, json or csv: of csv, tables and records alone, with every column"
	flags.FuncP("output", "o", forms, func(text string) error {
		p.output = text
		return oneOf(outputs, &p.output)
	})
	p.completes(root, "output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	flags.BoolFunc("json", "print JSON, as -o json does", func(string) error { p.output = asJSON; return nil })
	flags.BoolFunc("wide", "leave no column of a table out", func(string) error { p.width = 0; return nil })
	flags.StringVar(&p.env.Server, "server", p.env.Server, "the address of ops, the service for people, or of "+
		"the worker where it serves people too; else that of BILLHOOK_SERVER")
	const webhook = "the webhook service's address, else that of BILLHOOK_WEBHOOK"
	flags.StringVar(&p.env.Webhook, "webhook", p.env.Webhook, webhook)
	p.root = root
	for _, o := range known().Operations {
		p.operation(o)
	}
	for _, add := range []func(){
		p.dev, p.send, p.enqueue, p.providers, p.eventsTail, p.books,
		p.provision, p.switching, p.catalogs, p.doctor, p.imports,
	} {
		add()
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stdout)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	// A command with subcommands runs only to refuse; its help does not show that use.
	const leaf = "{{if and .Runnable (not .HasAvailableSubCommands)}}"
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "{{if .Runnable}}", leaf))
	grouped(root)
	return root
}

// catalog returns the catalog of the deployment: from CATALOG_DIR, with the queues of QUEUES, and with the
// pool of TASKS_POOL if that is set.
func (p *program) catalog() (*catalog.Catalog, error) {
	c, err := p.load(p.env.CatalogDir)
	if err == nil {
		c, err = c.Only(p.env.Queues)
	}
	if err != nil || p.env.TasksPool == "" {
		return c, err
	}
	return c.ForTasks(p.env.TasksPool)
}
