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
	each(r, node, sourcesFile, "sources", sourcePlace, func(name, place string, s Source) {
		s.Name = name
		r.checkSource(place, s, c)
		if haveQueues {
			r.checkRoutes(place, s, c)
		}
		c.Sources[name] = s
	})
	if node == nil || len(node.Content) == 0 {
		r.wrong(sourcesFile, "sources", "there is none")
	}
}

// SourceOf is the source whose webhooks are the provider's, where one is declared. Else it is one to declare, with what to
// write under sources: each event of the provider goes to the first queue that handles it.
func (c *Catalog) SourceOf(p Provider) (s Source, declaration string) {
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		if s = c.Sources[name]; s.Scheme == Scheme(p.Name) {
			return s, ""
		}
	}
	s = Source{Name: p.Name, SecretVariable: "WEBHOOK_SECRET_" + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))}
	declaration = fmt.Sprintf("  %s:\n    scheme: %s\n    secret_variable: %s\n", s.Name, p.Name, s.SecretVariable) +
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

// readAccounts reads who may send by a token, and where. haveQueues says whether the queues that they name are known.
func (c *Catalog) readAccounts(r *reader, node *yaml.Node, haveQueues bool) {
	each(r, node, sourcesFile, "accounts", sendingPlace, func(name, place string, ids []string) {
		require := r.requirer(place)
		require(word.MatchString(name), "name", "must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter")
		require(len(ids) > 0, "", "lists no queue and no topic")
		for i, id := range ids {
			q, isQueue := c.Queue(id)
			isTopic := slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.ID == id })
			require(!haveQueues || isTopic || (isQueue && q.ID == id), "", "no queue and no shared topic has the id "+shown(id))
			require(!slices.Contains(ids[:i], id), "", "lists "+shown(id)+" twice")
		}
		c.Accounts[name] = ids
	})
}

const (
	notificationsFile = "notifications.yaml"
	notificationPlace = notificationsFile + ": event"
)

var channelName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// NotificationType has the event as one word, so that notification.email.* holds a channel's messages.
func NotificationType(channel, event string) string {
	return "notification." + channel + "." + strings.ReplaceAll(event, ".", "_")
}

// readNotifications checks that a queue that takes the event emits to one that handles each channel's message.
func (c *Catalog) readNotifications(r *reader, node *yaml.Node) {
	each(r, node, notificationsFile, "notifications", notificationPlace, func(event, place string, channels []string) {
		require := r.requirer(place)
		require(len(channels) > 0, "", "is told on no channel")
		require(c.Contracts == nil || c.Contracts.Declares(contract.MessageV1, event), "", "is declared by no "+contract.MessageV1+" contract")
		for i, channel := range channels {
			told := NotificationType(channel, event)
			require(channelName.MatchString(channel) && c.tells(event, told), "", "channel "+shown(channel)+" is not known: no queue that takes the event emits to one that handles "+shown(told))
			require(!slices.Contains(channels[:i], channel), "", "lists "+shown(channel)+" twice")
		}
		c.Notifications[event] = channels
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
