package catalog

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"billhook/internal/contract"
)

// readSources reads the sources; haveQueues says whether the queues they name are known.
func (c *Catalog) readSources(r *reader, node *yaml.Node, haveQueues bool) {
	c.Sources = each(r, node, sourcesFile, "sources", "source",
		func(name string, s *Source, require requirer) {
			s.Name = name
			require(word.MatchString(s.Name), "name", wordRule)
			p, provided := c.Providers[string(s.Scheme)]
			require(provided || s.Scheme == SchemeGeneric || s.Scheme == SchemeStandard, "scheme",
				"must be generic, standard or a provider: "+strings.Join(slices.Sorted(maps.Keys(c.Providers)), ", "))
			const begins = "must be an environment variable that begins with WEBHOOK_"
			require(variable.MatchString(s.SecretVariable), "secret_variable", begins)
			if key := s.APIKeyVariable; key != "" {
				require(variable.MatchString(key) && key != s.SecretVariable, "api_key_variable",
					begins+", and not that of the secrets")
				require(p.API != (API{}), "api_key_variable", "its scheme has no api")
			}
			within(require, "max_body_bytes", s.MaxBodyBytes, 1<<10, 1<<20, "")
			within(require, "rate_per_second", s.RatePerSecond, 0, 1e6, noLimit)
			within(require, "burst", s.Burst, 0, 1e6, "")
			require((s.RatePerSecond > 0) == (s.Burst > 0), "burst",
				"must be above 0 where rate_per_second is, and only there")
			require(len(s.Events) > 0, "events", "there is none")
			for eventType, id := range s.Events {
				at := "events." + shown(eventType)
				require(anyCase.MatchString(eventType), at, nameRule)
				if haveQueues {
					what := r.misrouted(*s, eventType, id, c)
					require(what == "", at, what)
				}
			}
		})
	if node == nil || len(node.Content) == 0 {
		r.wrong(sourcesFile, "sources", "there is none")
	}
}

// misrouted says why no queue handles a source's event; empty: one does.
func (r *reader) misrouted(s Source, eventType, id string, c *Catalog) string {
	i := slices.IndexFunc(c.Queues, func(q Queue) bool { return q.ID == id })
	if i < 0 {
		return "no queue has the id " + shown(id)
	}
	q, place := c.Queues[i], queuePlace+" "+shown(id)
	format, mapped, known := c.Mapped(s, eventType)
	_, handled := q.Handler(mapped)
	switch {
	case !q.Enabled && !r.isUnread(place, "enabled"):
		return "queue " + shown(id) + " is not enabled"
	case !known:
		return "the provider " + shown(string(s.Scheme)) + " declares no such event"
	case format != "" && format != q.Contract:
		return "it leaves as " + format + ", and queue " + shown(id) + " takes " + q.Contract
	case !handled && !r.isUnread(place, handlerPath(mapped)):
		return "queue " + shown(id) + " handles only " + strings.Join(slices.Sorted(maps.Keys(q.Handlers)), ", ")
	}
	return ""
}

// SourceOf returns the declared source of a provider's webhooks. If there is none, it returns one to declare,
// with its lines of sources.yaml: each event goes to the first queue that handles it.
func (c *Catalog) SourceOf(p Provider) (s Source, declaration string) {
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		if s = c.Sources[name]; s.Scheme == Scheme(p.Name) {
			return s, ""
		}
	}
	secret := "WEBHOOK_SECRET_" + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))
	s = Source{Name: p.Name, SecretVariable: secret}
	declaration = fmt.Sprintf("  %s:\n    scheme: %s\n    secret_variable: %s\n", p.Name, p.Name, secret) +
		"    max_body_bytes: 1048576\n    rate_per_second: 100\n    burst: 200\n    events:\n"
	for _, eventType := range slices.Sorted(maps.Keys(p.Events)) {
		i := slices.IndexFunc(c.Queues, func(q Queue) bool {
			_, handled := q.Handler(p.Events[eventType].Type)
			return handled && q.Enabled && q.Contract == p.Contract
		})
		if i >= 0 {
			declaration += "      " + eventType + ": " + c.Queues[i].ID + "\n"
		}
	}
	return s, declaration
}

// readAccounts reads who may send by a token, and where; haveQueues is as in readSources.
func (c *Catalog) readAccounts(r *reader, node *yaml.Node, haveQueues bool) {
	c.Accounts = each(r, node, sourcesFile, "accounts", "account",
		func(name string, listed *[]string, require requirer) {
			ids := *listed
			require(word.MatchString(name), "name", wordRule)
			require(len(ids) > 0, "", "lists no queue and no topic")
			for i, id := range ids {
				q, isQueue := c.Queue(id)
				isTopic := slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.ID == id })
				require(!haveQueues || isTopic || (isQueue && q.ID == id), "",
					"no queue and no shared topic has the id "+shown(id))
				require(!slices.Contains(ids[:i], id), "", "lists "+shown(id)+" twice")
			}
		})
}

const notificationsFile = "notifications.yaml"

var channelName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// NotificationType returns the event type of a message. The event is one word of it, so that
// notification.email.* matches all messages of a channel.
func NotificationType(channel, event string) string {
	return "notification." + channel + "." + strings.ReplaceAll(event, ".", "_")
}

// readNotifications checks that a queue that takes the event emits to one with a handler for each channel.
func (c *Catalog) readNotifications(r *reader, node *yaml.Node) {
	c.Notifications = each(r, node, notificationsFile, "notifications", "event",
		func(event string, listed *[]string, require requirer) {
			channels := *listed
			require(len(channels) > 0, "", "has no channel")
			require(c.Contracts == nil || c.Contracts.Declares(contract.MessageV1, event), "",
				"is declared by no "+contract.MessageV1+" contract")
			for i, channel := range channels {
				message := NotificationType(channel, event)
				require(channelName.MatchString(channel) && c.notifies(event, message), "",
					fmt.Sprintf("channel %s is not known: no queue that takes the event emits to one that handles %s",
						shown(channel), shown(message)))
				require(!slices.Contains(channels[:i], channel), "", "lists "+shown(channel)+" twice")
			}
		})
}

// notifies reports whether a queue that takes the event emits to one that handles the message.
func (c *Catalog) notifies(event, message string) bool {
	_, found := c.find(func(from *Queue) bool {
		h, _ := from.Handler(event)
		return slices.ContainsFunc(h.Emits, func(id string) bool {
			_, handles := c.find(func(to *Queue) bool { _, ok := to.Handler(message); return ok && to.ID == id })
			return handles
		})
	})
	return found
}
