package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
)

const secretsOf = "secretmanager/projects/" + Project + "/secrets/"

// AddVersion adds a version to a secret, as gcloud secrets versions add does. Nobody here reads a value.
func (c *Cloud) AddVersion(secret string) {
	c.Change(func(held *State) {
		number := fmt.Sprint(len(c.keys(secretsOf+secret+"/versions/")) + 1)
		name := "projects/" + Number + "/secrets/" + secret + "/versions/" + number
		held.Resources[secretsOf+secret+"/versions/"+number] = Document{"name": name, "state": "ENABLED", "createTime": start}
		c.say("create %s%s/versions/%s", secretsOf, secret, number)
	})
}

// secrets answers for Secret Manager, which calls the project by its number.
func (c *Cloud) secrets(r call) (Document, error) {
	r.path = strings.Replace(r.path, "projects/"+Number+"/", "projects/"+Project+"/", 1)
	if strings.Contains(r.path, "/versions/") {
		if found := c.held.Resources[r.key()]; found != nil {
			return found, nil
		}
		return nil, notFound("Secret Version [%s] not found.", r.path)
	}
	written, err := c.plain(r)
	if err == nil && (r.method == http.MethodPost || r.method == http.MethodPatch) {
		written["name"] = strings.Replace(text(written, "name"), "projects/"+Project+"/", "projects/"+Number+"/", 1)
		written["createTime"] = start
	}
	return written, err
}
