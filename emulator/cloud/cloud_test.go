package cloud_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloud"
)

const (
	parent  = "run/v2/projects/demo-proj/locations/europe-west3/services"
	service = "run/projects/demo-proj/locations/europe-west3/services/shop"
	secret  = "secretmanager/projects/demo-proj/secrets/token"
	account = "shop-worker@demo-proj.iam.gserviceaccount.com"
)

// project is one where all APIs are on, and an account and a secret are there.
func project(t *testing.T) *cloud.Cloud {
	t.Helper()
	c := cloud.Start()
	t.Cleanup(c.Close)
	c.Enable("run", "iam", "secretmanager", "cloudscheduler", "monitoring", "logging", "firestore", "compute")
	call(t, c, "POST", "iam/v1/projects/demo-proj/serviceAccounts", `{"accountId":"shop-worker"}`)
	call(t, c, "POST", "secretmanager/v1/projects/demo-proj/secrets?secretId=token", `{}`)
	return c
}

// try makes one call, and returns the status and the answer.
func try(t *testing.T, c *cloud.Cloud, method, path, body string) (int, cloud.Document) {
	t.Helper()
	api, rest, _ := strings.Cut(path, "/")
	request, err := http.NewRequestWithContext(t.Context(), method, c.Endpoint(api)+rest, strings.NewReader(body))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var said cloud.Document
	require.NoError(t, json.Unmarshal(text, &said), string(text))
	return response.StatusCode, said
}

func call(t *testing.T, c *cloud.Cloud, method, path, body string) cloud.Document {
	t.Helper()
	code, said := try(t, c, method, path, body)
	require.Equal(t, http.StatusOK, code, "%v", said)
	return said
}

// template is a service's body with an image, and perhaps a secret.
func template(image string, readsSecret bool, traffic string) string {
	env := ""
	if readsSecret {
		env = `,"env":[{"name":"TOKEN","valueSource":{"secretKeyRef":{"secret":"token","version":"1"}}}]`
	}
	return fmt.Sprintf(`{"template":{"serviceAccount":%q,"containers":[{"image":%q%s}]}%s}`, account, image, env, traffic)
}

// condition is what a service says of itself.
func condition(c *cloud.Cloud) string {
	condition, is := c.Get(service)["terminalCondition"].(cloud.Document)
	if !is {
		return ""
	}
	message, _ := condition["message"].(string)
	return fmt.Sprint(condition["state"], " ", message)
}

func TestAnAPIThatIsOffRefuses(t *testing.T) {
	t.Parallel()
	c := cloud.Start()
	t.Cleanup(c.Close)
	code, said := try(t, c, "GET", parent, "")
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, fmt.Sprint(said), "run.googleapis.com has not been used")
	call(t, c, "POST", "serviceusage/v1/projects/demo-proj/services:batchEnable", `{"serviceIds":["run.googleapis.com"]}`)
	code, _ = try(t, c, "GET", parent, "")
	require.Equal(t, http.StatusOK, code)
}

func TestAServiceStartsOnlyWithItsSecretsAndItsGrants(t *testing.T) {
	t.Parallel()
	member := "serviceAccount:" + account
	for name, test := range map[string]struct {
		prepare func(*cloud.Cloud)
		want    string
	}{
		"without a grant":               {func(c *cloud.Cloud) { c.AddVersion("token", "x") }, "Permission denied on secret"},
		"without a version":             {func(c *cloud.Cloud) { c.Grant(secret, "roles/secretmanager.secretAccessor", member) }, "versions/1 was not found"},
		"with a version that is off":    {func(c *cloud.Cloud) { ready(c); c.SetVersion("token", "1", "DISABLED") }, "is in DISABLED state"},
		"with an image that is broken":  {func(c *cloud.Cloud) { ready(c); c.Fail("image-a", "exit 1") }, "failed to start and listen on the port: exit 1"},
		"with all that the service has": {ready, "CONDITION_SUCCEEDED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := project(t)
			test.prepare(c)
			said := call(t, c, "POST", parent+"?serviceId=shop", template("image-a", true, ""))
			require.Contains(t, condition(c), test.want)
			require.Equal(t, !strings.Contains(test.want, "SUCCEEDED"), said["error"] != nil, "the operation fails as the condition does")
		})
	}
}

// ready gives the service what it needs.
func ready(c *cloud.Cloud) {
	c.AddVersion("token", "x")
	c.Grant(secret, "roles/secretmanager.secretAccessor", "serviceAccount:"+account)
}

func TestAGrantWorksAfterItWasMissedAsOftenAsSaid(t *testing.T) {
	t.Parallel()
	c := project(t)
	c.SettleAfter(2)
	call(t, c, "POST", strings.Replace(secret, "/", "/v1/", 1)+":setIamPolicy", `{"policy":{"bindings":[{"role":"r","members":["serviceAccount:`+account+`"]}]}}`)
	for _, want := range []bool{false, false, true, true} {
		require.Equal(t, want, c.Granted(secret, "r", "serviceAccount:"+account))
	}
}

func TestTrafficStaysOnTheRevisionThatGotReady(t *testing.T) {
	t.Parallel()
	c := project(t)
	call(t, c, "POST", parent+"?serviceId=shop", template("image-a", false, ""))
	require.Equal(t, map[string]int{"image-a": 100}, c.Serving("europe-west3", "shop"))

	c.Fail("image-b", "exit 1")
	said := call(t, c, "PATCH", parent+"/shop", template("image-b", false, ""))
	require.NotNil(t, said["error"])
	require.Equal(t, map[string]int{"image-a": 100}, c.Serving("europe-west3", "shop"))
	require.Contains(t, condition(c), "CONDITION_FAILED")

	stable := c.Get(service)["trafficStatuses"].([]any)[0].(cloud.Document)["revision"].(string)
	split := `,"traffic":[{"type":"TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST","percent":20},{"type":"TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION","revision":"` + stable + `","percent":80}]`
	call(t, c, "PATCH", parent+"/shop", template("image-c", false, split))
	require.Equal(t, map[string]int{"image-a": 80, "image-c": 20}, c.Serving("europe-west3", "shop"))

	code, _ := try(t, c, "PATCH", parent+"/shop", template("image-c", false, strings.Replace(split, stable, "shop-none", 1)))
	require.Equal(t, http.StatusBadRequest, code, "no traffic goes to a revision that is not there")
	code, _ = try(t, c, "PATCH", parent+"/shop", template("image-c", false, strings.Replace(split, `"percent":80`, `"percent":70`, 1)))
	require.Equal(t, http.StatusBadRequest, code, "and all of it goes somewhere")
}

func TestWhatIsNotThereYetIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ method, path, body, want string }{
		"a subscription of no topic":      {"PUT", "pubsub/v1/projects/demo-proj/subscriptions/sub", `{"topic":"projects/demo-proj/topics/none"}`, "Resource not found (resource=none)"},
		"a job of no account":             {"POST", "cloudscheduler/v1/projects/demo-proj/locations/x/jobs", `{"name":"a/b","httpTarget":{"oidcToken":{"serviceAccountEmail":"no@demo-proj.iam"}}}`, "does not exist"},
		"a grant to no account":           {"POST", strings.Replace(secret, "/", "/v1/", 1) + ":setIamPolicy", `{"policy":{"bindings":[{"role":"r","members":["serviceAccount:no@demo-proj.iam"]}]}}`, "does not exist"},
		"an alert on no metric":           {"POST", "monitoring/v3/projects/demo-proj/alertPolicies", `{"conditions":[{"filter":"logging.googleapis.com/user/none"}]}`, "Cannot find metric"},
		"an index of no database":         {"POST", "firestore/v1/projects/demo-proj/databases/none/collectionGroups/c/indexes", `{}`, "does not exist"},
		"a service of no account":         {"POST", parent + "?serviceId=shop", `{"template":{"serviceAccount":"no@demo-proj.iam"}}`, "does not exist"},
		"a service with too long a name":  {"POST", parent + "?serviceId=" + strings.Repeat("a", 50), template("image-a", false, ""), "shorter than 50"},
		"an account with too long a name": {"POST", "iam/v1/projects/demo-proj/serviceAccounts", `{"accountId":"` + strings.Repeat("a", 31) + `"}`, "6 to 30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, said := try(t, project(t), test.method, test.path, test.body)
			require.GreaterOrEqual(t, code, 400)
			require.Contains(t, fmt.Sprint(said), test.want)
		})
	}
}

func TestMessagesWaitWhereNobodyIsPushedAndGoWithTheirSubscription(t *testing.T) {
	t.Parallel()
	c := project(t)
	call(t, c, "PUT", "pubsub/v1/projects/demo-proj/topics/news", `{}`)
	require.NoError(t, c.Publish("news", "1"))
	require.Contains(t, c.Log(), "LOST 1 messages to news, which nobody reads")
	call(t, c, "PUT", "pubsub/v1/projects/demo-proj/subscriptions/reader", `{"topic":"projects/demo-proj/topics/news"}`)
	require.NoError(t, c.Publish("news", "2"))
	require.Equal(t, 1, c.Waiting("reader"))
	call(t, c, "DELETE", "pubsub/v1/projects/demo-proj/subscriptions/reader", "")
	require.Contains(t, c.Log(), "LOST 1 messages of reader")
}

func TestARestoredProjectHoldsWhatItsSnapshotSaw(t *testing.T) {
	t.Parallel()
	c := project(t)
	ready(c)
	call(t, c, "POST", parent+"?serviceId=shop", template("image-a", true, ""))
	other := cloud.Start()
	t.Cleanup(other.Close)
	other.Restore(c.Snapshot())
	require.Equal(t, c.Get(service), other.Get(service))
	require.Equal(t, map[string]int{"image-a": 100}, other.Serving("europe-west3", "shop"))
	require.True(t, other.Granted(secret, "roles/secretmanager.secretAccessor", "serviceAccount:"+account))
}
