package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
)

// AddVersion adds a version to a secret, as gcloud secrets versions add does, and returns its number.
func (c *Cloud) AddVersion(secret, value string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addVersion("secretmanager/projects/"+Project+"/secrets/"+secret, value)
}

// SetVersion sets the state of a version: ENABLED, DISABLED or DESTROYED.
func (c *Cloud) SetVersion(secret, number, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Resources["secretmanager/projects/"+Project+"/secrets/"+secret+"/versions/"+number]["state"] = state
}

func (c *Cloud) addVersion(key, value string) string {
	number := fmt.Sprint(len(c.keys(key+"/versions/")) + 1)
	name := strings.TrimPrefix(key, "secretmanager/") + "/versions/" + number
	c.held.Resources[key+"/versions/"+number] = Document{
		"name": strings.Replace(name, "projects/"+Project+"/", "projects/"+Number+"/", 1), "state": "ENABLED", "createTime": "2026-01-01T00:00:00Z", "data": value,
	}
	c.say("create %s/versions/%s", key, number)
	return number
}

// version finds a version by number, or the latest.
func (c *Cloud) version(key, number string) (Document, bool) {
	if number == "latest" {
		number = fmt.Sprint(len(c.keys(key + "/versions/")))
	}
	found, is := c.held.Resources[key+"/versions/"+number]
	return found, is
}

// secrets answers for Secret Manager.
func (c *Cloud) secrets(r call) (any, error) {
	r.path = strings.Replace(r.path, "projects/"+Number+"/", "projects/"+Project+"/", 1)
	secret, number, ofVersion := strings.Cut(r.key(), "/versions/")
	if ofVersion {
		found, is := c.version(secret, number)
		if !is {
			return nil, refuse(http.StatusNotFound, "Secret Version [%s] not found.", r.path)
		}
		states := map[string]string{"enable": "ENABLED", "disable": "DISABLED", "destroy": "DESTROYED"}
		switch {
		case r.verb == "access" && text(found, "state") != "ENABLED":
			return nil, refuse(http.StatusBadRequest, "Secret Version [%s] is in %s state.", r.path, text(found, "state"))
		case r.verb == "access":
			return Document{"name": found["name"], "payload": Document{"data": found["data"]}}, nil
		case states[r.verb] != "":
			found["state"] = states[r.verb]
		}
		told := copied(found)
		delete(told, "data")
		return told, nil
	}
	switch {
	case r.verb == "addVersion":
		if _, found := c.held.Resources[r.key()]; !found {
			return nil, refuse(http.StatusNotFound, "Secret [%s] not found.", r.path)
		}
		made, _ := c.version(r.key(), c.addVersion(r.key(), text(r.body, "payload", "data")))
		return made, nil
	case r.method == http.MethodPost:
		made, err := c.create(r, r.ask("secretId"))
		if err != nil {
			return nil, err
		}
		made["name"] = strings.Replace(text(made, "name"), "projects/"+Project+"/", "projects/"+Number+"/", 1)
		made["createTime"] = "2026-01-01T00:00:00Z"
		return made, nil
	case r.method == http.MethodPatch:
		changed, err := c.change(r)
		if err != nil {
			return nil, err
		}
		changed["name"] = strings.Replace(text(changed, "name"), "projects/"+Project+"/", "projects/"+Number+"/", 1)
		return changed, nil
	case r.method == http.MethodDelete:
		for _, key := range c.keys(r.key() + "/versions/") {
			c.forget(key)
		}
	}
	return c.plain(r)
}
