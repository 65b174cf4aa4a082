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
			require(word.MatchString(s.Name), "name",
				"must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter")
			p, provided := c.Providers[string(s.Scheme)]
			require(provided || s.Scheme == SchemeGeneric || s.Scheme == SchemeStandard, "scheme",
				"must be generic, standard or a provider: "+strings.Join(slices.Sorted(maps.Keys(c.Providers)), ", "))
			require(variable.MatchString(s.SecretVariable), "secret_variable",
				"must be an environment variable that begins with WEBHOOK_")
			require(s.APIKeyVariable == "" ||
				(variable.MatchString(s.APIKeyVariable) && s.APIKeyVariable != s.SecretVariable), "api_key_variable",
				"must be an environment variable that begins with WEBHOOK_, and not that of the secrets")
			require(s.APIKeyVariable == "" || p.API != (API{}), "api_key_variable", "its scheme has no api")
			require(1<<10 <= s.MaxBodyBytes && s.MaxBodyBytes <= 1<<20, "max_body_bytes", "must be 1024 to 1048576")
			require(0 <= s.RatePerSecond && s.RatePerSecond <= 1e6, "rate_per_second",
				"must be 0, which is no limit, to 1000000")
			require(0 <= s.Burst && s.Burst <= 1e6, "burst", "must be 0 to 1000000")
			require((s.RatePerSecond > 0) == (s.Burst > 0), "burst",
				"must be above 0 where rate_per_second is, and only there")
			require(len(s.Events) > 0, "events", "there is none")
			for eventType, id := range s.Events {
				at := "events." + shown(eventType)
				require(eventName.MatchString(eventType), at,
					"must be an event type: at most 64 of letters, digits and _ . -, beginning with a letter")
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

// misrouted says why a source's event has no handler in a queue, under the type that a provider's becomes;
// empty: it has one.
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

// SourceOf is the source whose webhooks are the provider's, where one is declared. Else it is one to declare,
// with what to write under sources: each event of the provider goes to the first queue that handles it.
func (c *Catalog) SourceOf(p Provider) (s Source, declaration string) {
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		if s = c.Sources[name]; s.Scheme == Scheme(p.Name) {
			return s, ""
		}
	}
	s = Source{
		Name: p.Name, SecretVariable: "WEBHOOK_SECRET_" + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_")),
	}
	declaration = fmt.Sprintf("  %s:\n    scheme: %s\n    secret_variable: %s\n", s.Name, p.Name,
		s.SecretVariable) +
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

// readAccounts reads who may send by a token, and where. haveQueues says whether the queues that they name
// are known.
func (c *Catalog) readAccounts(r *reader, node *yaml.Node, haveQueues bool) {
	c.Accounts = each(r, node, sourcesFile, "accounts", "account",
		func(name string, listed *[]string, require requirer) {
			ids := *listed
			require(word.MatchString(name), "name",
				"must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter")
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

// NotificationType has the event as one word, so that notification.email.* holds a channel's messages.
func NotificationType(channel, event string) string {
	return "notification." + channel + "." + strings.ReplaceAll(event, ".", "_")
}

// readNotifications checks that a queue that takes the event emits to one that handles each channel's
// message.
func (c *Catalog) readNotifications(r *reader, node *yaml.Node) {
	c.Notifications = each(r, node, notificationsFile, "notifications", "event",
		func(event string, listed *[]string, require requirer) {
			channels := *listed
			require(len(channels) > 0, "", "is told on no channel")
			require(c.Contracts == nil || c.Contracts.Declares(contract.MessageV1, event), "",
				"is declared by no "+contract.MessageV1+" contract")
			for i, channel := range channels {
				told := NotificationType(channel, event)
				require(channelName.MatchString(channel) && c.tells(event, told), "", "channel "+shown(
					channel)+" is not known: no queue that takes the event emits to one that handles "+shown(told))
				require(!slices.Contains(channels[:i], channel), "", "lists "+shown(channel)+" twice")
			}
		})
}

// tells reports whether a queue that takes the event emits to one that handles the type.
func (c *Catalog) tells(event, told string) bool {
	_, found := c.find(func(from *Queue) bool {
		h, _ := from.Handler(event)
		return slices.ContainsFunc(h.Emits, func(id string) bool {
			_, handles := c.find(func(to *Queue) bool { _, ok := to.Handler(told); return ok && to.ID == id })
			return handles
		})
	})
	return found
}
