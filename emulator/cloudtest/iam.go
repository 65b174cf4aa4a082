package cloudtest

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// proxied matches the proxy's path of a region's services.
var proxied = regexp.MustCompile(`iap_web/cloud_run-([a-z0-9-]+)/`)

// Visit returns the status that the proxy or Cloud Run answers to a request from outside; 200: it passes.
func (c *Cloud) Visit(region, service, member string) (code int) {
	c.Change(func(held *State) {
		name := "/services/" + service
		key := "run/projects/" + Project + "/locations/" + region + name
		there, list := held.Resources[key], "iap/projects/"+Project+"/iap_web/cloud_run-"+region+name
		proxied := there["iapEnabled"] == true
		switch {
		case there["ingress"] != "INGRESS_TRAFFIC_ALL":
			code = http.StatusNotFound
		case proxied && c.has(list, "roles/iap.httpsResourceAccessor", member) &&
			c.has(key, "roles/run.invoker", "serviceAccount:"+ProxyAgent),
			!proxied && (there["invokerIamDisabled"] == true || c.has(key, "roles/run.invoker", member)):
			code = http.StatusOK
		default:
			code = http.StatusForbidden
		}
	})
	return code
}

// members returns the members to whom a policy grants a role.
func members(policy Document, role string) (all []any) {
	for _, binding := range list(policy, "bindings") {
		if text(binding, "role") == role {
			all = append(all, list(binding, "members")...)
		}
	}
	return all
}

// Grant grants a member, such as serviceAccount:<e-mail>, a role on a resource.
func (c *Cloud) Grant(key, role, member string) {
	c.Change(func(held *State) {
		policy := c.policy(key)
		policy["bindings"] = append(list(policy, "bindings"), Document{"role": role, "members": []any{member}})
		held.Policies[key] = policy
	})
}

// Revoke removes a member's role on a resource.
func (c *Cloud) Revoke(key, role, member string) {
	c.Change(func(held *State) {
		for _, binding := range list(held.Policies[key], "bindings") {
			if text(binding, "role") == role {
				object(binding)["members"] = slices.DeleteFunc(list(binding, "members"), func(m any) bool {
					return m == member
				})
			}
		}
	})
}

// Has reports whether a member has a role on a resource.
func (s State) Has(key, role, member string) bool {
	return slices.Contains(members(s.Policies[key], role), any(member))
}

// has reports whether a member has a role on a resource and the grant already works.
func (c *Cloud) has(key, role, member string) bool {
	if !c.held.Has(key, role, member) {
		return false
	}
	_, err := os.Stat(c.held.Settles)
	return err == nil || !c.held.Unsettled[key+"/"+role+" "+member]
}

func (c *Cloud) policy(key string) Document {
	if policy, found := c.held.Policies[key]; found {
		return policy
	}
	return Document{"version": 1, "etag": "BwX0="}
}

// setPolicy replaces a policy. It refuses one that has changed since it was read, or an unknown member.
func (c *Cloud) setPolicy(r call) (Document, error) {
	policy, before, of := object(r.body, "policy"), c.policy(r.key()), r
	if policy == nil {
		return nil, invalid("no policy")
	}
	if r.api == "iap" {
		of.api, of.path = "run", proxied.ReplaceAllString(r.path, "locations/$1/")
	}
	if there, err := c.find(of); err != nil {
		return nil, err
	} else if r.api == "iap" && there["iapEnabled"] != true {
		return nil, invalid("IAP is not enabled on %s.", r.path)
	}
	if etag := text(policy, "etag"); etag != "" && etag != text(before, "etag") {
		return nil, status.Error(codes.AlreadyExists,
			"There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
	}
	for _, binding := range list(policy, "bindings") {
		role := text(binding, "role")
		for _, member := range list(binding, "members") {
			email, is := strings.CutPrefix(fmt.Sprint(member), "serviceAccount:")
			if is && !c.exists(email) {
				return nil, invalid("Service account %s does not exist.", email)
			}
			if c.held.Settles != "" && !slices.Contains(members(before, role), member) {
				c.held.Unsettled[fmt.Sprintf("%s/%s %v", r.key(), role, member)] = true
			}
		}
	}
	policy["etag"] = fmt.Sprintf("BwX%d=", c.next())
	c.held.Policies[r.key()] = policy
	c.say("iam %s", r.key())
	return policy, nil
}

// exists reports whether an account exists. Google's own accounts come with their API.
func (c *Cloud) exists(email string) bool {
	switch email {
	case PubSubAgent:
		return c.held.Agent
	case ProxyAgent:
		return c.held.Enabled["iap"]
	}
	agent := strings.HasSuffix(email, ".iam.gserviceaccount.com") && strings.Contains(email, "@gcp-sa-")
	return agent || strings.Contains(email, "@serverless-robot-prod.") ||
		c.held.Resources["iam/projects/"+Project+"/serviceAccounts/"+email] != nil
}

func (c *Cloud) services(r call) (Document, error) {
	switch {
	case r.verb == "batchEnable" || r.verb == "enable":
		ids := list(r.body, "serviceIds")
		if len(ids) == 0 {
			ids = []any{last(r.path)}
		}
		for _, id := range ids {
			c.held.Enabled[strings.TrimSuffix(fmt.Sprint(id), ".googleapis.com")] = true
			c.say("enable %s", id)
		}
		return operation(c, "", Document{}), nil
	case r.verb == "generateServiceIdentity":
		api := strings.TrimSuffix(last(r.path), ".googleapis.com")
		c.held.Agent = c.held.Agent || api == "pubsub"
		c.say("identity of %s", api)
		return operation(c, "",
			Document{"email": "service-" + Number + "@gcp-sa-" + api + ".iam.gserviceaccount.com"}), nil
	case r.method == http.MethodGet:
		enabled := []any{}
		for _, api := range slices.Sorted(maps.Keys(c.held.Enabled)) {
			name := api + ".googleapis.com"
			enabled = append(enabled, Document{
				"name": "projects/" + Number + "/services/" + name, "parent": "projects/" + Number, "state": "ENABLED",
				"config": Document{"name": name},
			})
		}
		return Document{"services": enabled}, nil
	}
	return nil, invalid("unexpected: %s %s:%s", r.method, r.path, r.verb)
}
