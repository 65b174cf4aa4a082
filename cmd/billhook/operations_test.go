package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/store/storetest"
)

// scripted is a worker that answers from a script, and keeps the requests. A path has several answers, one
// after the other, the last of which repeats; a problem has the status 409.
type scripted struct {
	answers map[string][]string
	bodies  map[string]string
	keys    map[string]string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/ops")
	answers := s.answers[path]
	if len(answers) > 1 {
		s.answers[path] = answers[1:]
	}
	body, _ := io.ReadAll(r.Body)
	s.bodies[path], s.keys[path] = string(body), r.Header.Get("Idempotency-Key")
	answer := strings.Join(answers[:min(len(answers), 1)], "")
	if answer == "" || strings.Contains(answer, `"code"`) {
		w.WriteHeader(map[bool]int{true: http.StatusNotFound, false: http.StatusConflict}[answer == ""])
	}
	_, _ = io.WriteString(w, answer)
}

func script(t *testing.T, answers map[string][]string) (s *scripted, server string) {
	t.Helper()
	s = &scripted{answers: answers, bodies: map[string]string{}, keys: map[string]string{}}
	return s, listen(t, s)
}

// operation is a replay of two dead letters, as it stands.
func operation(progress string, done int, outcomes string) string {
	return fmt.Sprintf(`{"id":"id-1","kind":"replay","progress":%q,"total":2,"done":%d,"outcomes":{%s}}`,
		progress, done, outcomes)
}

const replay = "dlq replay orders --yes --why mended"

func TestAReplayIsFollowedToItsOutcome(t *testing.T) {
	t.Parallel()
	type row struct {
		shown             []string
		with, want, fails string
	}
	running := operation("running", 0, "")
	half := operation("running", 1, `"processed":1,"waiting":1`)
	finished := func(outcomes string) string { return operation("finished", 2, outcomes) }
	filetest.Each(t, map[string]row{
		"all are processed": {
			[]string{half, finished(`"processed":2`)}, "", "DEAD LETTERS 2\n…operation id-1: 1 of 2; 1 processed, " +
				"1 still waiting\n…operation id-1: 2 of 2; 2 processed…DONE 2…", "",
		},
		"one is dead again": {
			[]string{finished(`"processed":1,"dead_again":1`)},
			"", "1 processed, 1 dead again…",
			"operations items id-1",
		},
		"one still waits": {
			[]string{finished(`"processed":1,"waiting":1`)},
			" --wait 1500ms",
			"It goes on by itself. Look on: bin/billhook operations run id-1",
			"not all are processed: 1 processed, 1 still waiting",
		},
		"it is not followed": {nil, " --wait 0", "PROGRESS running", ""},
	}, func(t *testing.T, test row) {
		worker, server := script(t, map[string][]string{
			"/dead-letters/preview": {`{"total":2,"filter":{"queue":"orders"}}`}, "/dead-letters/replay": {running},
			"/operations/id-1/run": {running}, "/operations/id-1": test.shown,
		})
		play(t, onPlace, server, []step{{line: replay + test.with, want: test.want, fails: test.fails}})
		const seen = `{"queue":"orders","expect":2,"why":"mended"}`
		require.JSONEq(t, seen, worker.bodies["/dead-letters/replay"])
		require.NotEmpty(t, worker.keys["/dead-letters/replay"], "it can be sent again")
		play(t, onPlace, server, []step{{line: "dlq replay orders --force --wait 0 --yes --why mended"}})
		require.Contains(t, worker.bodies["/dead-letters/replay"], `"force":true`)
	})
}

func TestAReplayOfNothingIsNotSent(t *testing.T) {
	t.Parallel()
	none := []string{`{"total":0,"filter":{"queue":"orders"}}`}
	worker, server := script(t, map[string][]string{"/dead-letters/preview": none})
	play(t, onPlace, server, []step{
		{line: "dlq replay orders --why mended", want: "Nothing matches.", fails: "there is nothing to replay"},
	})
	require.Empty(t, worker.bodies["/dead-letters/replay"])
}

func TestTheSecondPersonConfirmsThePreview(t *testing.T) {
	t.Parallel()
	worker, server := script(t, map[string][]string{
		"/dead-letters/preview":    {`{"total":2,"filter":{"queue":"orders"}}`},
		"/dead-letters/replay":     {operation("waiting_for_approval", 0, "")},
		"/operations/id-1/preview": {`{"total":2}`},
		"/operations/id-1/approve": {
			`{"code":"changed","detail":"1 items match now."}`, operation("finished", 2, `"processed":2`),
		},
	})
	play(t, onPlace, server, walk(t, "a second person approves a replay"))
	require.JSONEq(t, `{"expect":2,"why":"checked"}`, worker.bodies["/operations/id-1/approve"])
}

func TestPagesAreFollowedUpToTheLimit(t *testing.T) {
	t.Parallel()
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _ := strconv.Atoi(r.URL.Query().Get("page"))
		most, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("limit"), "50"))
		assert.NoError(t, err)
		var page console.List[events.Line]
		for n := first; n < min(first+min(most, 100), 250); n++ {
			page.Items, page.Next = append(page.Items, events.Line{EventID: strconv.Itoa(n)}), strconv.Itoa(n+1)
		}
		if page.Next == "250" {
			page.Next = ""
		}
		assert.NoError(t, json.NewEncoder(w).Encode(page))
	}))
	for limit, want := range map[string]int{"1": 1, "200": 200, "210": 210, "1000": 250, "0": 250} {
		out := succeeds(t, asAda, "events", "ls", "--json", "--limit", limit, "--server", worker)
		list := filetest.JSON[console.List[events.Line]](t, out) // one document
		require.Equal(t, want < 250, list.Next != "")
		require.Len(t, list.Items, want)
		for n, line := range list.Items {
			require.Equal(t, strconv.Itoa(n), line.EventID)
		}
	}
}

func TestAFileBecomesAMemberOfTheRequest(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"body.json": `{"n":9007199254740993}`, "text.txt": "not JSON", "products.yaml": "products: {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	worker, server := script(t, map[string][]string{"/events/try": {`{"event_id":"e-1"}`}})
	for args, want := range map[string]string{
		"e-1":                                `{"event_id":"e-1"}`,
		"--body {folder}body.json --queue q": `{"body":{"n":9007199254740993},"queue":"q"}`,
		"--message - --tenant t":             `{"message":{"typed":true},"tenant":"t"}`,
		"e-1 --catalog {folder}":             `{"event_id":"e-1","catalog":{"products.yaml":"products: {}\n"}}`,
	} {
		line := strings.Replace("events try "+args, "{folder}", folder+string(filepath.Separator), 1)
		play(t, asAda, server, []step{{line: line, typed: `{"typed":true}`, want: "EVENT e-1\n"}})
		require.JSONEq(t, want, worker.bodies["/events/try"], args)
	}
	play(t, asAda, server, []step{
		{line: "events try --body " + filepath.Join(folder, "text.txt"), fails: "text.txt is not JSON"},
		{line: "events try e-1 --catalog " + t.TempDir(), fails: "has no .yaml file"},
		{line: "events show e-1", fails: "the worker answers (404 Not Found)"},
	})
}

func TestAChangeIsMadeOnceItsEffectIsConfirmed(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	clock := func() time.Time { at = at.Add(time.Minute); return at }
	start := map[string]catalog.Product{"hat": {Points: 250}}
	play(t, asAda, serveAPI(t, operations.Apps{
		Reads:    events.Reads{Store: db, Now: clock, Catalog: &catalog.Catalog{Products: start}},
		Products: &products.Editor{Store: db, Start: start, Now: clock, NewID: uuid.NewString},
	}), walk(t, "a change is made once its effect is confirmed"))
}
