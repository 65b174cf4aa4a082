package main

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) endpointsCommand() *cobra.Command {
	command := &cobra.Command{Use: "endpoints", Short: "Look at the addresses that third parties registered to be told of events, and change them"}
	ask := p.worker(command)
	command.AddCommand(p.endpointsList(ask), p.endpointsShow(ask), p.endpointsAdd(ask), p.endpointsTest(ask),
		p.endpointsRotate(ask), p.endpointsEnable(ask), p.endpointsDisable(ask), p.endpointsRemove(ask))
	return command
}

func endpointPath(id, rest string) string { return "/v1/ops/endpoints/" + url.PathEscape(id) + rest }

func (p *program) endpointsList(ask func() client) *cobra.Command {
	var state, tenant string
	var limit *int
	command := &cobra.Command{
		Use: "ls", Short: "List endpoints, the newest first", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			values := parameters(map[string]string{"state": state, "tenant": tenant})
			return columns[endpoints.Endpoint]{
				names: []string{"ENDPOINT", "STATE", "REASON", "FAILING SINCE", "EVENTS", "TENANT", "URL"}, less: []string{"TENANT", "EVENTS"},
				row: func(e endpoints.Endpoint) []string {
					return row(e.ID, e.State, e.Reason, when(e.FailingSince), strings.Join(e.Events, " "), e.Tenant, e.URL)
				},
			}.list(command.Context(), p, ask(), "/v1/ops/endpoints", values, *limit)
		},
	}
	command.Flags().StringVar(&state, "state", "", "only those that are disabled, or failing")
	oneOf(command, "state", "disabled", "failing")
	command.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	limit = limitFlag(command, perPage)
	return command
}

// endpoint is what the command show prints with --json.
type endpoint struct {
	endpoints.Endpoint
	Changes []audit.Entry `json:"changes"`
}

func (p *program) endpointsShow(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "show <endpoint>", Short: "Show an endpoint, since when it fails, and who changed it", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			e := endpoint{Changes: []audit.Entry{}}
			if err := ask().get(command.Context(), endpointPath(args[0], ""), &e.Endpoint); err != nil {
				return err
			}
			changes, err := pages[audit.Entry](command.Context(), ask(), endpointPath(args[0], "/changes"), nil, 0)
			if err != nil {
				return err
			}
			e.Changes = changes.Items
			p.printEndpoint(e.Endpoint)
			changesOf("state").print(p, e.Changes)
			return p.printJSON(e)
		},
	}
}

// changesOf are the columns of changes of one member.
func changesOf(name string) columns[audit.Entry] {
	return columns[audit.Entry]{names: []string{"CHANGED", "HOW", "FROM", "TO", "WHO", "WHY"}, row: func(c audit.Entry) []string {
		return row(when(c.At), c.Action, shownOf(c.Before, name), shownOf(c.After, name), c.Who, c.Why)
	}}
}

func (p *program) printEndpoint(e endpoints.Endpoint) {
	p.printf("%s of tenant %s is %s and called at %s for %s.\n", e.ID, e.Tenant, e.State, e.URL, strings.Join(e.Events, " "))
	if e.Reason != "" {
		p.printf("It is disabled since %s: %s.\n", when(e.ChangedAt), e.Reason)
	}
	if !e.FailingSince.IsZero() {
		p.printf("It has not succeeded since %s: %s.\n", when(e.FailingSince), e.Failure)
	}
	if e.OldSecretUntil.After(time.Now()) {
		p.printf("The secret before the last rotation signs too, until %s.\n", when(e.OldSecretUntil))
	}
}

func (p *program) endpointsAdd(ask func() client) *cobra.Command {
	var add ops.AddEndpoint
	command := &cobra.Command{
		Use: "add <url> --why <reason>", Short: "Register an endpoint, and show its secret once", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			add.URL = args[0]
			return send(command.Context(), p, ask(), http.MethodPost, "/v1/ops/endpoints", add, p.printSecret)
		},
	}
	command.Flags().StringVar(&add.ID, "id", "", "its id, which messages name; one is made up where it is empty")
	command.Flags().StringVar(&add.Tenant, "tenant", "", "whose events it is told of")
	command.Flags().StringSliceVar(&add.Events, "events", nil, "patterns of event types, such as invoice.*,subscription.#; all where there is none")
	return whyOnly(command, &add.Why)
}

// whyOnly adds the flag --why, and fails the command without it.
func whyOnly(command *cobra.Command, why *string) *cobra.Command {
	command.Flags().StringVar(why, "why", "", "the reason, for the audit; required")
	command.PreRunE = func(*cobra.Command, []string) error { return given(*why) }
	return command
}

func (p *program) printSecret(s endpoints.Secret) {
	p.printEndpoint(s.Endpoint)
	p.printf("Its secret, which is not shown again: %s\n", s.Secret)
}

// endpointChange is a change of one endpoint that a person is asked for.
type endpointChange struct {
	method, rest string
	// effect says what it does; do is what the typed id confirms.
	effect, do string
}

// changeEndpoint shows the endpoint and the effect of a change, asks, and sends it.
func changeEndpoint[T any](p *program, ask func() client, change endpointChange, why *reason, print func(T)) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		ctx, worker := command.Context(), ask()
		var before endpoints.Endpoint
		if err := worker.get(ctx, endpointPath(args[0], ""), &before); err != nil {
			return err
		}
		p.printEndpoint(before)
		p.printf("%s\n", change.effect)
		if goOn, err := why.confirmed(p, command, before, before.ID, change.do); !goOn {
			return err
		}
		return send(ctx, p, worker, change.method, endpointPath(args[0], change.rest), endpoints.Change{Why: why.why}, print)
	}
}

func (p *program) endpointsRotate(ask func() client) *cobra.Command {
	var why reason
	return why.required(&cobra.Command{
		Use: "rotate <endpoint> --why <reason>", Short: "Give an endpoint a new secret, and show it once; the old one signs too for a time", Args: cobra.ExactArgs(1),
		RunE: changeEndpoint(p, ask, endpointChange{
			http.MethodPost, "/rotate", "It gets a new secret. The one that it has signs beside it for a time; one from before an earlier rotation ends now.", "rotate it",
		}, &why, p.printSecret),
	})
}

func (p *program) endpointsEnable(ask func() client) *cobra.Command {
	var why string
	return whyOnly(&cobra.Command{
		Use: "enable <endpoint> --why <reason>", Short: "Tell an endpoint of events from now on; what it has missed is not sent", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return send(command.Context(), p, ask(), http.MethodPost, endpointPath(args[0], "/enable"), endpoints.Change{Why: why}, p.printEndpoint)
		},
	}, &why)
}

func (p *program) endpointsDisable(ask func() client) *cobra.Command {
	var why reason
	return why.required(&cobra.Command{
		Use: "disable <endpoint> --why <reason>", Short: "Tell an endpoint of nothing from now on", Args: cobra.ExactArgs(1),
		RunE: changeEndpoint(p, ask, endpointChange{
			http.MethodPost, "/disable", "It is told of nothing from now on. Events for it are done without a request, and are not sent later.", "disable it",
		}, &why, p.printEndpoint),
	})
}

func (p *program) endpointsRemove(ask func() client) *cobra.Command {
	var why reason
	return why.required(&cobra.Command{
		Use: "rm <endpoint> --why <reason>", Short: "Forget an endpoint and its secrets", Args: cobra.ExactArgs(1),
		RunE: changeEndpoint(p, ask, endpointChange{
			http.MethodDelete, "", "It is forgotten with its secrets. Events that name it are done without a request.", "remove it",
		}, &why, func(e endpoints.Endpoint) { p.printf("%s is removed.\n", e.ID) }),
	})
}

func (p *program) endpointsTest(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "test <endpoint>", Short: "Send an endpoint an event of the type endpoint.test, signed as all are", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return send(command.Context(), p, ask(), http.MethodPost, endpointPath(args[0], "/test"), nil, func(tested endpoints.Tested) {
				if tested.Delivered {
					p.printf("%s has answered %d after %d ms.\n", tested.ID, tested.Status, tested.Milliseconds)
				} else {
					p.printf("%s has not taken it: %s, after %d ms.\n", tested.ID, tested.Reason, tested.Milliseconds)
				}
			})
		},
	}
}
