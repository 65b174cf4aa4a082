package catalog

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// readSources reads the sources; haveQueues says whether the queues they name are known.
func (c *Catalog) readSources(r *reader, node *yaml.Node, haveQueues bool) {
	r.each(node, sourcesFile, "sources", sourcePlace, func(name, place string, tree map[string]any) {
		s := Source{Name: name}
		r.decode(tree, &s, place, "")
		r.checkSource(place, s)
		if haveQueues {
			r.checkRoutes(place, s, c)
		}
		c.Sources[name] = s
	})
	if node == nil || len(node.Content) == 0 {
		r.wrong(sourcesFile, "sources", "there is none")
	}
}

// readAccounts reads who may send by a token, and where. haveQueues says whether the queues that they name are known.
func (c *Catalog) readAccounts(r *reader, node *yaml.Node, haveQueues bool) {
	if node == nil {
		return
	}
	for name, listed := range r.entries(node, sourcesFile, "accounts") {
		place := sendingPlace + " " + shown(name)
		r.note(place, "", r.lines.of(sourcesFile, join("accounts", name)))
		var account struct {
			To []string `json:"to"`
		}
		r.decode(map[string]any{"to": r.tree(listed, place, "to")}, &account, place, "")
		if !word.MatchString(name) {
			r.wrong(place, "name", "must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter")
		}
		if len(account.To) == 0 {
			r.wrong(place, "to", "lists no queue and no topic")
		}
		for i, id := range account.To {
			q, isQueue := c.Queue(id)
			isTopic := slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.ID == id })
			if haveQueues && !isTopic && (!isQueue || q.ID != id) {
				r.wrong(place, "to", "no queue and no shared topic has the id "+shown(id))
			}
			if slices.Contains(account.To[:i], id) {
				r.wrong(place, "to", "lists "+shown(id)+" twice")
			}
		}
		c.Accounts[name] = account.To
	}
}
