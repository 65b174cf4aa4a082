package cloudtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// certificates answers for Certificate Manager. What another resource names cannot be deleted.
func (c *Cloud) certificates(r call) (any, error) {
	switch r.method {
	case http.MethodPost:
		var id string
		for _, parameter := range []string{"dnsAuthorizationId", "certificateId", "certificateMapId", "certificateMapEntryId"} {
			id += r.ask(parameter)
		}
		made, err := c.create(r, id)
		if err != nil {
			return nil, err
		}
		if domain := text(made, "domain"); domain != "" {
			made["dnsResourceRecord"] = Document{"name": "_acme-challenge." + domain + ".", "type": "CNAME", "data": id + ".authorize.example.com."}
		}
		if strings.HasSuffix(r.path, "/certificateMapEntries") {
			made["state"] = "ACTIVE"
		}
		return c.done(made), nil
	case http.MethodPatch:
		changed, err := c.change(r)
		if err != nil {
			return nil, err
		}
		return c.done(changed), nil
	case http.MethodDelete:
		for _, key := range c.keys("certificatemanager/") {
			written, err := json.Marshal(c.held.Resources[key])
			if err == nil && key != r.key() && strings.Contains(string(written), "/"+strings.TrimPrefix(r.path, "projects/"+Project+"/")+`"`) {
				return nil, refuse(http.StatusBadRequest, "%s is in use by %s", r.path, strings.TrimPrefix(key, "certificatemanager/"))
			}
		}
		if _, err := c.remove(r); err != nil {
			return nil, err
		}
		return c.done(Document{}), nil
	}
	return c.read(r)
}
