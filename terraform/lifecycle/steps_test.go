package lifecycle_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
)

// revision is the short name of a service's latest revision.
func (i *installation) revision(service string) string {
	i.t.Helper()
	name, _ := i.service(service)["latestReadyRevision"].(string)
	require.NotEmpty(i.t, name)
	return name[strings.LastIndex(name, "/")+1:]
}

// pin does what gcloud run services update-traffic --to-revisions does.
func (i *installation) pin(service, revision string) {
	i.t.Helper()
	body := i.service(service)
	body["traffic"] = []any{cloudtest.Document{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION", "revision": revision, "percent": 100}}
	i.call(http.MethodPatch, "run", "v2/projects/"+cloudtest.Project+"/locations/"+region+"/services/"+service, body)
}

// call is a call to an API by somebody else than Terraform.
func (i *installation) call(method, api, path string, body cloudtest.Document) {
	i.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(i.t, err)
	request, err := http.NewRequestWithContext(i.t.Context(), method, i.cloud.Endpoint(api)+path, strings.NewReader(string(text)))
	require.NoError(i.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(i.t, err)
	defer func() { require.NoError(i.t, response.Body.Close()) }()
	said, err := io.ReadAll(response.Body)
	require.NoError(i.t, err)
	require.Equal(i.t, http.StatusOK, response.StatusCode, string(said))
}

// service is a service's document.
func (i *installation) service(name string) cloudtest.Document {
	return i.cloud.Get("run/projects/" + cloudtest.Project + "/locations/" + region + "/services/" + name)
}

// subscription is a subscription's document.
func (i *installation) subscription(name string) cloudtest.Document {
	return i.cloud.Get("pubsub/projects/" + cloudtest.Project + "/subscriptions/" + name)
}

// endpoint is where a subscription pushes, or empty.
func (i *installation) endpoint(name string) string {
	config, _ := i.subscription(name)["pushConfig"].(cloudtest.Document)
	endpoint, _ := config["pushEndpoint"].(string)
	return endpoint
}

// problems are the errors of what Terraform said.
func problems(said string) string {
	if at := strings.Index(said, "\nError: "); at >= 0 {
		return said[at:]
	}
	return said
}

var frame = regexp.MustCompile(`[│╷╵\s]+`)

func unframed(said string) string { return strings.TrimSpace(frame.ReplaceAllString(said, " ")) }

// failures are the lines of what happened that tell of a refusal or a loss.
func failures(happened []string) []string {
	var found []string
	for _, line := range happened {
		if strings.HasPrefix(line, "REFUSED") || strings.HasPrefix(line, "RUN FAILED") || strings.HasPrefix(line, "LOST") {
			found = append(found, line)
		}
	}
	return found
}

// order requires that things have happened one after the other: each part is of a line after that
// of the part before.
func order(t *testing.T, happened []string, parts ...string) {
	t.Helper()
	at := 0
	for _, part := range parts {
		found := false
		for ; at < len(happened) && !found; at++ {
			found = strings.Contains(happened[at], part)
		}
		require.True(t, found, "%q does not come after what is before it in %q:\n%s", part, parts, strings.Join(happened, "\n"))
	}
}
