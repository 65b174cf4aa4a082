package lifecycle_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloud"
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
	body["traffic"] = []any{cloud.Document{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION", "revision": revision, "percent": 100}}
	i.call(http.MethodPatch, "run", "v2/projects/"+cloud.Project+"/locations/"+region+"/services/"+service, body)
}

// call is a call to an API by somebody else than Terraform.
func (i *installation) call(method, api, path string, body cloud.Document) {
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
