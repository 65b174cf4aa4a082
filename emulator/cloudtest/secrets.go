package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
)

// AddVersion adds a version to a secret, as gcloud secrets versions add does. Nobody here reads a value.
func (c *Cloud) AddVersion(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := "secretmanager/projects/" + Project + "/secrets/" + secret
	number := fmt.Sprint(len(c.keys(key+"/versions/")) + 1)
	name := "projects/" + Number + "/secrets/" + secret + "/versions/" + number
	c.held.Resources[key+"/versions/"+number] = Document{"name": name, "state": "ENABLED", "createTime": start}
	c.say("create %s/versions/%s", key, number)
}

// SetVersion sets the state of a version: ENABLED, DISABLED or DESTROYED.
func (c *Cloud) SetVersion(secret, number, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Resources["secretmanager/projects/"+Project+"/secrets/"+secret+"/versions/"+number]["state"] = state
}

// secrets answers for Secret Manager, which calls the project by its number.
func (c *Cloud) secrets(r call) (any, error) {
	r.path = strings.Replace(r.path, "projects/"+Number+"/", "projects/"+Project+"/", 1)
	if strings.Contains(r.path, "/versions/") {
		found := c.held.Resources[r.key()]
		if found == nil {
			return nil, refuse(http.StatusNotFound, "Secret Version [%s] not found.", r.path)
		}
		return found, nil
	}
	var written Document
	var err error
	switch r.method {
	case http.MethodPost:
		written, err = c.create(r, r.ask("secretId"))
	case http.MethodPatch:
		written, err = c.change(r)
	default:
		return c.plain(r)
	}
	if err == nil {
		written["name"], written["createTime"] = strings.Replace(text(written, "name"), "projects/"+Project+"/", "projects/"+Number+"/", 1), start
	}
	return written, err
}
