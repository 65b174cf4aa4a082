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
	r.lists(node, sourcesFile, "accounts", sendingPlace, func(name, place string, ids []string) {
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
