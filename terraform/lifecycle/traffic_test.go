package lifecycle_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
	"billhook/emulator/emulatortest"
)

// front is Cloud Run before the workers: it looks the service of a push's address up, and whether
// the pool's push account may call it. It counts messages, and the pushes that it turned away.
type front struct {
	cloud *cloudtest.Cloud

	mu     sync.Mutex
	came   map[string]map[string]bool // message ids by service
	turned []string
	news   chan struct{} // told of each message
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "-"+cloudtest.Number+".")
	key := "run/projects/" + cloudtest.Project + "/locations/" + region + "/services/" + name
	pusher := "serviceAccount:" + strings.Replace(name, "-worker-", "-push-", 1) + "@" + cloudtest.Project + ".iam.gserviceaccount.com"
	var push struct{ Message struct{ MessageID string } }
	err := json.NewDecoder(r.Body).Decode(&push)
	code, why := http.StatusNoContent, ""
	switch {
	case err != nil:
		code, why = http.StatusBadRequest, err.Error()
	case f.cloud.Get(key) == nil:
		code, why = http.StatusNotFound, name+" is not there"
	case !f.cloud.Granted(key, "roles/run.invoker", pusher):
		code, why = http.StatusForbidden, pusher+" may not call "+name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if why != "" {
		f.turned = append(f.turned, why)
	} else {
		if f.came[name] == nil {
			f.came[name] = map[string]bool{}
		}
		f.came[name][push.Message.MessageID] = true
	}
	w.WriteHeader(code)
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// missing are the ids that no service has had.
func (f *front) missing(ids []string) (missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		had := false
		for _, came := range f.came {
			had = had || came[id]
		}
		if !had {
			missing = append(missing, id)
		}
	}
	return missing
}

// publish publishes a message on the emulator, and returns its id.
func publish(emulator, topic string, n int) (string, error) {
	data := base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(n)))
	body := fmt.Sprintf(`{"messages":[{"data":%q}]}`, data)
	response, err := http.Post("http://"+emulator+"/v1/projects/"+cloudtest.Project+"/topics/"+topic+":publish", "application/json", strings.NewReader(body)) //nolint:noctx // it ends with the emulator
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var said struct{ MessageIDs []string }
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil || len(said.MessageIDs) != 1 {
		return "", fmt.Errorf("publish: %d %w", response.StatusCode, err)
	}
	return said.MessageIDs[0], nil
}

// Messages are published all the time while the pool of all queues gets another name. None is lost,
// and none is turned away: the new service, and its grants, are there before a push comes.
func TestAPoolIsRenamedUnderTrafficWithoutALostMessage(t *testing.T) {
	t.Parallel()
	emulator := emulatortest.PubSub(t)
	i := installed(t)
	events, _ := paynow(t, shipped(t))

	before := &front{cloud: i.cloud, came: map[string]map[string]bool{}, news: make(chan struct{}, 1)}
	server := httptest.NewServer(before)
	t.Cleanup(server.Close)
	require.NoError(t, i.cloud.Mirror(emulator, func(endpoint string) string {
		return server.URL + "/" + strings.TrimPrefix(endpoint, "https://")
	}))

	var ids []string
	var failed error
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; failed == nil; n++ {
			id, err := publish(emulator, events.ID, n)
			ids, failed = append(ids, id), err
			select {
			case <-stop:
				return
			case <-before.news: // a push was answered: time for the next message
			}
		}
	}()
	happened := i.edit("queues.yaml", "\n    pool: "+events.Pool+"\n", "\n    pool: money\n").
		edit("queues.yaml", "\ntasks_pool: "+events.Pool, "\ntasks_pool: money").apply()
	close(stop)
	<-stopped
	require.NoError(t, failed)
	require.Empty(t, failures(happened))
	last, err := publish(emulator, events.ID, -1)
	require.NoError(t, err)
	ids = append(ids, last)
	for len(before.missing(ids)) > 0 { // until the test's own time is over
		<-before.news
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	require.Empty(t, before.turned, "no push was turned away")
	require.NotEmpty(t, before.came[worker(events.Pool)])
	require.Contains(t, before.came[worker("money")], last)
	const project = "projects/" + cloudtest.Project
	order(t, happened,
		"create iam/"+project+"/serviceAccounts/billhook-worker-money@", "create run/"+project+"/locations/"+region+"/services/"+worker("money"),
		"iam run/"+project+"/locations/"+region+"/services/"+worker("money"),
		"change pubsub/"+project+"/subscriptions/", "delete run/"+project+"/locations/"+region+"/services/"+worker(events.Pool),
	)
	for _, key := range i.cloud.Keys("pubsub/" + project + "/subscriptions/") {
		require.NotContains(t, i.endpoint(strings.TrimPrefix(key, "pubsub/"+project+"/subscriptions/")), worker(events.Pool))
	}
	require.Nil(t, i.service(worker(events.Pool)))
	i.settled()
}
