// Package cloudtest imitates, in one process, the control planes of one Google Cloud project: the APIs
// that Terraform and the doctor call. It owns refusing what the real ones refuse where order and
// change matter: APIs that are not enabled, accounts, versions of secrets, topics, log metrics and
// grants that do not exist (yet), names that are too long or taken. It refuses to prove anything
// about Google Cloud by what it accepts: what it refuses is worth a look.
package cloudtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Project and Number are those of the one project that there is.
const (
	Project = "demo-proj"
	Number  = "123456789012"
)

// PubSubAgent is the e-mail address of Pub/Sub's own account in the project.
const PubSubAgent = "service-" + Number + "@gcp-sa-pubsub.iam.gserviceaccount.com"

// Document is a resource as the APIs write it in JSON.
type Document = map[string]any

// state is all that a project holds. It is what a Snapshot copies.
type state struct {
	// Resources are the documents by API and name: run/projects/<p>/locations/<l>/services/<s>.
	Resources map[string]Document
	Policies  map[string]Document
	// Unsettled counts, by resource, role and member, how often a grant is still found missing.
	Unsettled map[string]int
	// Enabled are the APIs that were switched on: run, pubsub.
	Enabled map[string]bool
	// Waiting counts the messages of each subscription without a receiver.
	Waiting map[string]int
	// Agent reports whether Pub/Sub's own account exists.
	Agent bool
	// Last numbers operations, etags and revisions.
	Last int
}

// Cloud is the project. Its methods may be called at any time.
type Cloud struct {
	server *httptest.Server

	mu      sync.Mutex
	held    state
	log     []string
	faults  map[string]string // what makes a container or an API fail, and the words
	settles int
	hidden  []string
}

// Start starts a project in which the APIs of docs/deploying.md's first step are enabled.
func Start() *Cloud {
	c := &Cloud{faults: map[string]string{}}
	c.held = state{
		Resources: map[string]Document{}, Policies: map[string]Document{}, Unsettled: map[string]int{}, Waiting: map[string]int{}, Agent: true,
		Enabled: map[string]bool{"artifactregistry": true, "cloudresourcemanager": true, "pubsub": true, "serviceusage": true},
	}
	c.server = httptest.NewServer(c)
	return c
}

// Close stops answering.
func (c *Cloud) Close() { c.server.Close() }

// Endpoint is the address of an API (run, cloudscheduler, secretmanager, pubsub, iam, monitoring,
// logging, firestore, cloudtasks, cloudresourcemanager, serviceusage, compute, billingbudgets),
// in the place of https://<api>.googleapis.com/.
func (c *Cloud) Endpoint(api string) string { return c.server.URL + "/" + api + "/" }

// Snapshot is what a project holds at one moment.
type Snapshot []byte

// Snapshot copies what the project holds.
func (c *Cloud) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(c.held)
	if err != nil {
		panic(err) // it was JSON when it came
	}
	return text
}

// Restore makes the project hold what another did. Its log and faults stay.
func (c *Cloud) Restore(s Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = state{}
	if err := json.Unmarshal(s, &c.held); err != nil {
		panic(err) // Snapshot has written it
	}
}

// Get returns a copy of a resource by its key, such as
// run/projects/demo-proj/locations/europe-west1/services/billhook-webhook, or nil.
func (c *Cloud) Get(key string) Document {
	c.mu.Lock()
	defer c.mu.Unlock()
	return copied(c.held.Resources[key])
}

// Keys lists the keys that begin with prefix, in order.
func (c *Cloud) Keys(prefix string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys(prefix)
}

// Put makes or changes a resource behind everybody's back.
func (c *Cloud) Put(key string, resource Document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Resources[key] = copied(resource)
}

// Remove deletes a resource and its policy behind everybody's back.
func (c *Cloud) Remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(key)
}

// Fail makes a thing fail from now on: an image ("…/worker@sha256:…") whose container does not
// start, a resource's key that cannot be written, or "<api>" or "<api>:<region>" that answers 503.
// Empty words end it.
func (c *Cloud) Fail(thing, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if words == "" {
		delete(c.faults, thing)
		return
	}
	c.faults[thing] = words
}

// WithAgent says whether Pub/Sub's own account is there: in a new project nobody has made it yet.
func (c *Cloud) WithAgent(there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Agent = there
}

// Hide makes Cloud Monitoring not know these log metrics, by their keys, as it does not for ten
// minutes after they were made. Without any it knows all.
func (c *Cloud) Hide(metrics ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = metrics
}

// Enable switches APIs on, as gcloud services enable does: run, not run.googleapis.com.
func (c *Cloud) Enable(apis ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, api := range apis {
		c.held.Enabled[api] = true
	}
}

// Disable switches APIs off.
func (c *Cloud) Disable(apis ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, api := range apis {
		delete(c.held.Enabled, api)
	}
}

// Log returns what has happened since it was asked last, a line for each change and each refusal.
func (c *Cloud) Log() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.log
	c.log = nil
	return said
}

func (c *Cloud) say(format string, arguments ...any) {
	c.log = append(c.log, fmt.Sprintf(format, arguments...))
}

func (c *Cloud) keys(prefix string) []string {
	var found []string
	for key := range c.held.Resources {
		if strings.HasPrefix(key, prefix) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

func (c *Cloud) forget(key string) {
	for _, gone := range append(c.keys(key+"/"), key) {
		delete(c.held.Resources, gone)
		delete(c.held.Policies, gone)
		for grant := range c.held.Unsettled {
			if strings.HasPrefix(grant, gone+" ") {
				delete(c.held.Unsettled, grant)
			}
		}
	}
}

func (c *Cloud) next() int {
	c.held.Last++
	return c.held.Last
}

type refusal struct {
	code int
	text string
}

func (r refusal) Error() string { return r.text }

func refuse(code int, format string, arguments ...any) error {
	return refusal{code, fmt.Sprintf(format, arguments...)}
}

// call is one request: DELETE run v2 projects/p/... with its verb, the word after the colon.
type call struct {
	method, api, version, path, verb string
	query                            map[string][]string
	body                             Document
}

func (r call) key() string { return r.api + "/" + r.path }

func (r call) last() string { return r.path[strings.LastIndex(r.path, "/")+1:] }

// region is the one that the path names, or empty.
func (r call) region() string {
	_, after, _ := strings.Cut(r.path, "/locations/")
	name, _, _ := strings.Cut(after, "/")
	return name
}

func (r call) ask(name string) string {
	if values := r.query[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var verb = regexp.MustCompile(`:([a-zA-Z]+)$`)

// apis are the planes and what answers for each. The rest is in place for all of them: whether the
// API is enabled, IAM policies, reading, listing.
var apis = map[string]func(*Cloud, call) (any, error){
	"run": (*Cloud).run, "pubsub": (*Cloud).pubsub, "iam": (*Cloud).accounts, "secretmanager": (*Cloud).secrets, "compute": (*Cloud).compute,
	"cloudscheduler": (*Cloud).paused, "cloudtasks": (*Cloud).paused, "serviceusage": (*Cloud).services, "cloudresourcemanager": (*Cloud).project,
	"monitoring": (*Cloud).plain, "logging": (*Cloud).plain, "firestore": (*Cloud).plain, "certificatemanager": (*Cloud).plain,
	"billingbudgets": (*Cloud).plain, "cloudbilling": (*Cloud).plain, "cloudkms": (*Cloud).plain,
}

// ServeHTTP answers as the APIs do: /<api>/<version>/<path>.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(request.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.NotFound(w, request)
		return
	}
	r := call{method: request.Method, api: parts[0], version: parts[1], path: parts[2], query: request.URL.Query()}
	if found := verb.FindStringSubmatch(r.path); found != nil {
		r.verb, r.path = found[1], strings.TrimSuffix(r.path, found[0])
	}
	text, err := io.ReadAll(request.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &r.body)
	}
	if err != nil {
		answer(w, nil, refuse(http.StatusBadRequest, "the body is not JSON: %v", err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	said, err := c.serve(r)
	if refused, is := err.(refusal); is && refused.code != http.StatusNotFound { //nolint:errorlint // refuse returns it unwrapped
		c.say("REFUSED %d %s", refused.code, refused.text)
	}
	answer(w, said, err)
}

func answer(w http.ResponseWriter, said any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		code := http.StatusInternalServerError
		if refused, is := err.(refusal); is { //nolint:errorlint // refuse returns it unwrapped
			code = refused.code
		}
		w.WriteHeader(code)
		said = Document{"error": Document{"code": code, "message": err.Error(), "status": statuses[code]}}
	}
	_ = json.NewEncoder(w).Encode(said)
}

var statuses = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
	http.StatusConflict: "ALREADY_EXISTS", http.StatusServiceUnavailable: "UNAVAILABLE",
}

func (c *Cloud) serve(r call) (any, error) {
	handle, known := apis[r.api]
	switch {
	case !known:
		return nil, refuse(http.StatusNotFound, "no such API here: %s", r.api)
	case c.faults[r.api] != "":
		return nil, refuse(http.StatusServiceUnavailable, "%s", c.faults[r.api])
	case c.faults[r.api+":"+r.region()] != "":
		return nil, refuse(http.StatusServiceUnavailable, "%s", c.faults[r.api+":"+r.region()])
	case r.api != "serviceusage" && !c.held.Enabled[r.api] && r.api != "cloudbilling":
		return nil, refuse(http.StatusForbidden, "SERVICE_DISABLED: %s.googleapis.com has not been used in project %s before or it is disabled.", r.api, Number)
	case r.method != http.MethodGet && c.faults[r.key()] != "":
		return nil, refuse(http.StatusBadRequest, "%s", c.faults[r.key()])
	}
	switch r.verb {
	case "getIamPolicy":
		return c.policy(r.key()), nil
	case "setIamPolicy":
		return c.setPolicy(r)
	case "testIamPermissions":
		return Document{"permissions": r.body["permissions"]}, nil
	}
	if r.method == http.MethodGet && strings.Contains(r.path, "operations/") {
		return Document{"name": r.path, "done": true, "status": "DONE", "response": Document{}}, nil
	}
	return handle(c, r)
}
