package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) endpointsCommand() *cobra.Command {
	command, ask := p.under("endpoints", "Look at the addresses that third parties registered to be told of events, and change them", false)
	secret := func(s endpoints.Secret) {
		p.printEndpoint(s.Endpoint)
		p.printf("Its secret, which is not shown again: %s\n", s.Secret)
	}
	var add ops.AddEndpoint
	adds := &cobra.Command{
		Use: "add <url> --why <reason>", Short: "Register an endpoint, and show its secret once", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			add.URL = args[0]
			return send(command.Context(), p, ask(), http.MethodPost, "/v1/ops/endpoints", add, secret)
		},
	}
	adds.Flags().StringVar(&add.ID, "id", "", "its id, which messages name; one is made up where it is empty")
	adds.Flags().StringVar(&add.Tenant, "tenant", "", "whose events it is told of")
	adds.Flags().StringSliceVar(&add.Events, "events", nil, "patterns of event types, such as invoice.*,subscription.#; all where there is none")
	command.AddCommand(lists(p, ask, question{
		use: "ls", short: "List endpoints, the newest first", path: "/v1/ops/endpoints", limit: perPage,
		flags: map[string]string{"state": "only those that are disabled, or failing", "tenant": "only those of this tenant"},
		oneOf: map[string][]string{"state": {"disabled", "failing"}},
	}, columns[endpoints.Endpoint]{
		names: []string{"ENDPOINT", "STATE", "REASON", "FAILING SINCE", "EVENTS", "TENANT", "URL"}, less: []string{"TENANT", "EVENTS"},
		row: func(e endpoints.Endpoint) []string {
			return row(e.ID, e.State, e.Reason, when(e.FailingSince), strings.Join(e.Events, " "), e.Tenant, e.URL)
		},
	}), p.endpointsShow(ask), whyOnly(adds, &add.Why), sends(p, ask, question{
		use: "test <endpoint>", short: "Send an endpoint an event of the type endpoint.test, signed as all are", path: endpointPath + "/test",
	}, func(string) any { return nil }, func(tested endpoints.Tested) {
		if tested.Delivered {
			p.printf("%s has answered %d after %d ms.\n", tested.ID, tested.Status, tested.Milliseconds)
		} else {
			p.printf("%s has not taken it: %s, after %d ms.\n", tested.ID, tested.Reason, tested.Milliseconds)
		}
	}), sends(p, ask, question{
		use: "enable <endpoint> --why <reason>", short: "Tell an endpoint of events from now on; what it has missed is not sent", path: endpointPath + "/enable",
	}, func(why string) any { return endpoints.Change{Why: why} }, p.printEndpoint),
		changes(p, ask, p.endpointChange(http.MethodPost, "rotate", "/rotate", "rotate it", "Give an endpoint a new secret, and show it once; the old one signs too for a time",
			"It gets a new secret. The one that it has signs beside it for a time; one from before an earlier rotation ends now."), secret),
		changes(p, ask, p.endpointChange(http.MethodPost, "disable", "/disable", "disable it", "Tell an endpoint of nothing from now on",
			"It is told of nothing from now on. Events for it are done without a request, and are not sent later."), p.printEndpoint),
		changes(p, ask, p.endpointChange(http.MethodDelete, "rm", "", "remove it", "Forget an endpoint and its secrets",
			"It is forgotten with its secrets. Events that name it are done without a request."), func(e endpoints.Endpoint) { p.printf("%s is removed.\n", e.ID) }))
	return command
}

const endpointPath = "/v1/ops/endpoints/{}"

type endpoint struct {
	endpoints.Endpoint
	Changes []audit.Entry `json:"changes"`
}

func (p *program) endpointsShow(ask func() client) *cobra.Command {
	command, path := question{use: "show <endpoint>", short: "Show an endpoint, since when it fails, and who changed it", path: endpointPath}.command()
	command.RunE = func(command *cobra.Command, args []string) error {
		e := endpoint{Changes: []audit.Entry{}}
		if err := ask().get(command.Context(), path(command, args), &e.Endpoint); err != nil {
			return err
		}
		changes, err := pages[audit.Entry](command.Context(), ask(), path(command, args)+"/changes", nil, 0)
		if err != nil {
			return err
		}
		e.Changes = changes.Items
		p.printEndpoint(e.Endpoint)
		changesOf("state").print(p, e.Changes)
		return p.printJSON(e)
	}
	return command
}

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

func (p *program) endpointChange(method, name, rest, do, short, effect string) change[endpoints.Endpoint] {
	return change[endpoints.Endpoint]{
		question: question{use: name + " <endpoint> --why <reason>", short: short, path: endpointPath + rest}, look: endpointPath, method: method,
		plan: func(_ []string, before endpoints.Endpoint, why reason) (string, string, any) {
			p.printEndpoint(before)
			p.printf("%s\n", effect)
			return before.ID, do, endpoints.Change{Why: why.why}
		},
	}
}
