// Package cloudtest imitates, in one process, the control planes of one Google Cloud project that Terraform
// and the doctor call. Like the real ones, it refuses APIs that are not enabled, accounts, versions of
// secrets, topics, log metrics and grants that do not exist (yet), and names that are too long or taken. That
// it accepts a call proves nothing about Google Cloud.
package cloudtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Project and Number are the id and the number of the only project.
const (
	Project = "demo-proj"
	Number  = "123456789012"
)

// PubSubAgent and ProxyAgent are Pub/Sub's and Identity-Aware Proxy's own accounts in the project.
const (
	PubSubAgent = "service-" + Number + "@gcp-sa-pubsub.iam.gserviceaccount.com"
	ProxyAgent  = "service-" + Number + "@gcp-sa-iap.iam.gserviceaccount.com"
)

// Document is a resource in the APIs' JSON.
type Document = map[string]any

// State has all resources and settings of a project.
type State struct {
	// Resources has the documents by API and name: run/projects/<p>/locations/<l>/services/<s>. A subscription
	// without an endpoint counts its waiting messages in the member waiting.
	Resources map[string]Document
	Policies  map[string]Document
	// Unsettled has grants that were made while Settles named a file, and work only once the file exists.
	Unsettled map[string]bool
	Settles   string
	// Enabled has the enabled APIs by the names of gcloud services enable: run, pubsub.
	Enabled map[string]bool
	// Agent reports whether Pub/Sub's own account exists, which a new project does not have.
	Agent bool
	// Faults has the error texts of images that do not start, and of each "<api>:<region>" that answers 503.
	Faults map[string]string
	// Hidden has the keys of log metrics that Cloud Monitoring does not know yet, in their first ten minutes.
	Hidden []string
	// Last is the last number of an operation, etag or revision.
	Last int
}

// Cloud is the project. Its methods may be called at any time.
type Cloud struct {
	server *httptest.Server

	mu    sync.Mutex
	held  State
	log   []string
	watch func(State)
}

// Start starts a project with the APIs enabled that the first step of docs/start/first-deployment.md enables.
func Start() *Cloud {
	c := &Cloud{held: State{
		Resources: map[string]Document{"cloudresourcemanager/projects/" + Project: {
			"projectId": Project, "projectNumber": Number, "name": Project, "lifecycleState": "ACTIVE",
		}},
		Policies: map[string]Document{}, Unsettled: map[string]bool{},
		Faults: map[string]string{}, Agent: true,
		Enabled: map[string]bool{"storage": true},
	}}
	for _, api := range []string{
		"artifactregistry", "cloudresourcemanager", "cloudscheduler", "cloudtasks", "firestore", "iam", "iap",
		"logging", "monitoring",
		"pubsub", "run", "secretmanager", "serviceusage",
	} {
		c.held.Enabled[api] = true
	}
	c.server = httptest.NewServer(c)
	return c
}

// Close stops the project's server.
func (c *Cloud) Close() { c.server.Close() }

// Endpoint returns the address of an API, such as run, that replaces https://<api>.googleapis.com/.
func (c *Cloud) Endpoint(api string) string { return c.server.URL + "/" + api + "/" }

// Change changes the project's state without a call of an API.
func (c *Cloud) Change(how func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.held)
}

// Watch makes each API call that may change the state call a function with the new state.
func (c *Cloud) Watch(look func(State)) { c.Change(func(*State) { c.watch = look }) }

// Snapshot returns a copy of the project's state.
func (c *Cloud) Snapshot() (s State) {
	c.Change(func(held *State) { s = copied(*held) })
	return s
}

// Restore replaces the project's state, but not its log.
func (c *Cloud) Restore(s State) { c.Change(func(held *State) { *held = copied(s) }) }

// Get returns a copy of a resource by its key, such as run/projects/<p>/locations/<l>/services/<s>, or nil.
func (c *Cloud) Get(key string) (found Document) {
	c.Change(func(held *State) { found = copied(held.Resources[key]) })
	return found
}

// Put makes or changes a resource, without a call of an API.
func (c *Cloud) Put(key string, resource Document) {
	c.Change(func(held *State) { held.Resources[key] = copied(resource) })
}

// Keys lists the resources' keys that begin with prefix, in order.
func (c *Cloud) Keys(prefix string) (found []string) {
	c.Change(func(*State) { found = c.keys(prefix) })
	return found
}

// Remove deletes a resource and its policy, without a call of an API.
func (c *Cloud) Remove(key string) { c.Change(func(*State) { c.forget(key) }) }

// Log returns a line for each change and each refusal since its last call.
func (c *Cloud) Log() (said []string) {
	c.Change(func(*State) { said, c.log = c.log, nil })
	return said
}

func (c *Cloud) say(format string, arguments ...any) {
	c.log = append(c.log, fmt.Sprintf(format, arguments...))
}

func (c *Cloud) keys(prefix string) []string {
	others := func(key string) bool { return !strings.HasPrefix(key, prefix) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.held.Resources)), others)
}

func (c *Cloud) forget(key string) {
	removeUnder(c.held.Resources, key)
	removeUnder(c.held.Policies, key)
	removeUnder(c.held.Unsettled, key)
}

// removeUnder deletes the entries of a resource and of those below it.
func removeUnder[V any](held map[string]V, key string) {
	maps.DeleteFunc(held, func(of string, _ V) bool { return strings.HasPrefix(of+"/", key+"/") })
}

func (c *Cloud) next() int {
	c.held.Last++
	return c.held.Last
}

func notFound(format string, arguments ...any) error {
	return status.Errorf(codes.NotFound, format, arguments...)
}

func invalid(format string, arguments ...any) error {
	return status.Errorf(codes.InvalidArgument, format, arguments...)
}

// call is a request, such as DELETE run v2 projects/p/... Its verb follows a colon, or is a setter's name.
type call struct {
	collection
	method, api, path, verb string
	query                   url.Values
	body                    Document
}

func (r call) key() string { return r.api + "/" + r.path }

func last(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// region returns the region in a path, or an empty text.
func region(path string) string {
	_, after, _ := strings.Cut(path, "/locations/")
	name, _, _ := strings.Cut(after, "/")
	return name
}

var (
	address = regexp.MustCompile(`^/([^/]*)/[^/]*/((?s:.*?))(?::([a-zA-Z]+)|/(set[A-Z][a-zA-Z]+))?$`)
	project = regexp.MustCompile(`projects/(?:` + Number + `|-)/`)
)

// ServeHTTP answers /<api>/<version>/<path> like the APIs. The project may be named by its number or as "-".
func (c *Cloud) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	found := address.FindStringSubmatch(project.ReplaceAllString(request.URL.Path, "projects/"+Project+"/"))
	if found == nil {
		http.NotFound(w, request)
		return
	}
	r := call{method: request.Method, api: found[1], path: found[2], query: request.URL.Query()}
	r.verb = found[3] + found[4]
	var said Document
	err := json.NewDecoder(request.Body).Decode(&r.body)
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: there is no body
		err = invalid("the body is not JSON: %v", err)
	} else {
		said, err = c.answer(r)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		refused := status.Convert(err)
		as := refusals[refused.Code()]
		w.WriteHeader(as.code)
		said = Document{"error": Document{"code": as.code, "message": refused.Message(), "status": as.status}}
	}
	_, _ = w.Write(must(json.Marshal(said)))
}

// refusals maps gRPC codes to those of the JSON APIs.
var refusals = map[codes.Code]struct {
	code   int
	status string
}{
	codes.InvalidArgument:  {http.StatusBadRequest, "INVALID_ARGUMENT"},
	codes.PermissionDenied: {http.StatusForbidden, "PERMISSION_DENIED"},
	codes.NotFound:         {http.StatusNotFound, "NOT_FOUND"},
	codes.AlreadyExists:    {http.StatusConflict, "ALREADY_EXISTS"},
	codes.Unavailable:      {http.StatusServiceUnavailable, "UNAVAILABLE"},
}

// answer returns a copy, because the resource may change while the answer is written.
func (c *Cloud) answer(r call) (said Document, err error) {
	c.Change(func(*State) {
		said, err = c.serve(r)
		if refused := status.Convert(err); err != nil && refused.Code() != codes.NotFound {
			c.say("REFUSED %d %s", refusals[refused.Code()].code, refused.Message())
		}
		if c.watch != nil && r.method != http.MethodGet {
			c.watch(c.held)
		}
		said = copied(said)
	})
	return said, err
}

func (c *Cloud) serve(r call) (Document, error) {
	words := c.held.Faults[r.api+":"+region(r.path)]
	switch {
	case !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.api == r.api }):
		return nil, notFound("no such API here: %s", r.api)
	case words != "":
		return nil, status.Error(codes.Unavailable, words)
	case r.api != "serviceusage" && !c.held.Enabled[r.api] && r.api != "cloudbilling":
		return nil, status.Errorf(codes.PermissionDenied,
			"SERVICE_DISABLED: %s.googleapis.com has not been used in project %s before or it is disabled.",
			r.api, Number)
	case r.verb == "getIamPolicy":
		return c.policy(r.key()), nil
	case r.verb == "setIamPolicy":
		return c.setPolicy(r)
	case r.verb == "testIamPermissions":
		return Document{"permissions": r.body["permissions"]}, nil
	case r.method == http.MethodGet && strings.Contains(r.path, "operations/"):
		return Document{"name": r.path, "done": true, "status": "DONE", "response": Document{}}, nil
	case r.api == "serviceusage":
		return c.services(r)
	}
	return c.plain(r)
}
