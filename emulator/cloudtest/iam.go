package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
)

// SettleAfter makes every grant that is given from now on be found missing so many times before it
// works: a count in the place of the minutes that IAM takes.
func (c *Cloud) SettleAfter(checks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settles = checks
}

// Settle makes all grants work.
func (c *Cloud) Settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.held.Unsettled)
}

// Grant gives a role on a resource to a member, such as serviceAccount:<e-mail>.
func (c *Cloud) Grant(key, role, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	policy := copied(c.policy(key))
	policy["bindings"] = append(list(policy, "bindings"), Document{"role": role, "members": []any{member}})
	c.held.Policies[key] = policy
}

// Revoke takes a role on a resource from a member.
func (c *Cloud) Revoke(key, role, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	policy := copied(c.policy(key))
	var left []any
	for _, binding := range list(policy, "bindings") {
		if text(binding, "role") == role {
			var members []any
			for _, m := range list(binding, "members") {
				if m != member {
					members = append(members, m)
				}
			}
			binding = Document{"role": role, "members": members}
		}
		left = append(left, binding)
	}
	policy["bindings"] = left
	c.held.Policies[key] = policy
}

// has reports whether a member has a role on a resource, and the grant works by now. Asking counts as a check.
func (c *Cloud) has(key, role, member string) bool {
	grant := strings.Join([]string{key, role, member}, " ")
	for _, binding := range list(c.held.Policies[key], "bindings") {
		if text(binding, "role") != role {
			continue
		}
		for _, m := range list(binding, "members") {
			if m != member {
				continue
			}
			if c.held.Unsettled[grant] > 0 {
				c.held.Unsettled[grant]--
				return false
			}
			return true
		}
	}
	return false
}

func (c *Cloud) policy(key string) Document {
	if policy, found := c.held.Policies[key]; found {
		return policy
	}
	return Document{"version": 1, "etag": "BwX0="}
}

// setPolicy replaces a policy. A policy that was changed since it was read is refused, and so is a
// member that does not exist.
func (c *Cloud) setPolicy(r call) (any, error) {
	policy, is := r.body["policy"].(Document)
	if !is {
		return nil, refuse(http.StatusBadRequest, "no policy")
	}
	if _, found := c.held.Resources[r.key()]; !found && !strings.HasPrefix(r.key(), "cloudresourcemanager/projects/") {
		return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
	}
	before := c.policy(r.key())
	if etag := text(policy, "etag"); etag != "" && etag != text(before, "etag") {
		return nil, refuse(http.StatusConflict, "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
	}
	for _, binding := range list(policy, "bindings") {
		for _, m := range list(binding, "members") {
			member, _ := m.(string)
			if email, is := strings.CutPrefix(member, "serviceAccount:"); is && !c.exists(email) {
				return nil, refuse(http.StatusBadRequest, "Service account %s does not exist.", email)
			}
			if c.settles > 0 && !c.bound(before, text(binding, "role"), member) {
				c.held.Unsettled[strings.Join([]string{r.key(), text(binding, "role"), member}, " ")] = c.settles
			}
		}
	}
	policy["etag"] = fmt.Sprintf("BwX%d=", c.next())
	c.held.Policies[r.key()] = policy
	c.say("iam %s", r.key())
	return policy, nil
}

func (c *Cloud) bound(policy Document, role, member string) bool {
	for _, binding := range list(policy, "bindings") {
		for _, m := range list(binding, "members") {
			if text(binding, "role") == role && m == member {
				return true
			}
		}
	}
	return false
}

// exists reports whether there is such an account. Google's own ones come with their API.
func (c *Cloud) exists(email string) bool {
	if email == PubSubAgent {
		return c.held.Agent
	}
	if strings.HasSuffix(email, ".iam.gserviceaccount.com") && strings.Contains(email, "@gcp-sa-") || strings.Contains(email, "@serverless-robot-prod.") {
		return true
	}
	_, found := c.held.Resources["iam/projects/"+Project+"/serviceAccounts/"+email]
	return found
}

func (c *Cloud) accounts(r call) (any, error) {
	r.path = strings.Replace(r.path, "projects/-/", "projects/"+Project+"/", 1)
	switch {
	case r.verb == "undelete":
		role, found := c.held.Resources[r.key()]
		if !found {
			return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
		}
		delete(role, "deleted")
		return role, nil
	case r.method == http.MethodPost && r.last() == "serviceAccounts":
		id := text(r.body, "accountId")
		if len(id) < 6 || len(id) > 30 {
			return nil, refuse(http.StatusBadRequest, "account id %q must be 6 to 30 characters", id)
		}
		email := id + "@" + Project + ".iam.gserviceaccount.com"
		account, _ := r.body["serviceAccount"].(Document)
		account = copied(account)
		if account == nil {
			account = Document{}
		}
		account["email"], account["projectId"] = email, Project
		account["uniqueId"] = fmt.Sprintf("1%020d", c.next())
		r.body = account
		return c.create(r, email)
	case r.method == http.MethodPost && r.last() == "roles":
		role, _ := r.body["role"].(Document)
		id := text(r.body, "roleId")
		r.body = role
		return c.create(r, id)
	case r.method == http.MethodDelete && strings.Contains(r.path, "/roles/"):
		role, found := c.held.Resources[r.key()]
		if !found {
			return nil, refuse(http.StatusNotFound, "not found: %s", r.key())
		}
		role["deleted"] = true // a role's name stays taken for weeks
		c.say("delete %s", r.key())
		return role, nil
	case r.method == http.MethodPatch && strings.Contains(r.path, "/serviceAccounts/"):
		account, _ := r.body["serviceAccount"].(Document)
		r.body = account
		return c.change(r)
	}
	return c.plain(r)
}

func (c *Cloud) project(r call) (any, error) {
	if r.method == http.MethodGet && r.path == "projects/"+Project {
		return Document{"projectId": Project, "projectNumber": Number, "name": Project, "lifecycleState": "ACTIVE"}, nil
	}
	return nil, refuse(http.StatusForbidden, "The caller does not have permission on %s", r.path)
}

func (c *Cloud) services(r call) (any, error) {
	switch {
	case r.verb == "batchEnable" || r.verb == "enable":
		ids := list(r.body, "serviceIds")
		if len(ids) == 0 {
			ids = []any{r.last()}
		}
		for _, id := range ids {
			name, _ := id.(string)
			c.held.Enabled[strings.TrimSuffix(name, ".googleapis.com")] = true
			c.say("enable %s", name)
		}
		return c.done(Document{}), nil
	case r.method == http.MethodGet:
		enabled := []any{}
		for api, on := range c.held.Enabled {
			if on {
				name := api + ".googleapis.com"
				enabled = append(enabled, Document{"name": "projects/" + Number + "/services/" + name, "parent": "projects/" + Number, "state": "ENABLED", "config": Document{"name": name}})
			}
		}
		return Document{"services": enabled}, nil
	}
	return nil, refuse(http.StatusBadRequest, "unexpected: %s %s:%s", r.method, r.path, r.verb)
}
