package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store/storetest"
)

// scripted is a worker that answers each call as a script says, and keeps what it was sent. A path has
// several answers one after the other, and the last again and again; a problem is one of the status 409.
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

func TestAReplaySaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	type row struct {
		shown             []string
		with, want, fails string
	}
	filetest.Each(t, map[string]row{
		"when all are processed": {
			[]string{operation("running", 1, `"processed":1,"waiting":1`), operation("finished", 2, `"processed":2`)},
			"",
			"DEAD LETTERS 2\n…operation id-1: 1 of 2; 1 processed, 1 still waiting\n…operation id-1: 2 of 2; 2 " +
				"processed…DONE 2…", "",
		},
		"when one is dead again": {
			[]string{operation("finished", 2, `"processed":1,"dead_again":1`)},
			"", "1 processed, 1 dead again…",
			"operations items id-1",
		},
		"when nothing is heard of one": {
			[]string{operation("finished", 2, `"processed":1,"waiting":1`)},
			" --wait 1500ms", "It goes on by itself. Look on: bin/billhook operations run id-1",
			"not all are processed: 1 processed, 1 still waiting",
		},
		"when nobody wants to know": {nil, " --wait 0", "PROGRESS running", ""},
	}, func(t *testing.T, test row) {
		worker, server := script(t, map[string][]string{
			"/dead-letters/preview": {`{"total":2,"filter":{"queue":"orders"}}`},
			"/dead-letters/replay":  {operation("running", 0, "")},
			"/operations/id-1/run":  {operation("running", 0, "")}, "/operations/id-1": test.shown,
		})
		play(t, onPlace, server, []step{{line: replay + test.with, want: test.want, fails: test.fails}})
		require.JSONEq(t, `{"queue":"orders","expect":2,"why":"mended"}`, worker.bodies["/dead-letters/replay"],
			"it is for what was seen")
		require.NotEmpty(t, worker.keys["/dead-letters/replay"], "it can be sent again")
		play(t, onPlace, server, []step{{line: "dlq replay orders --force --wait 0 --yes --why mended"}})
		require.Contains(t, worker.bodies["/dead-letters/replay"], `"force":true`)
	})
}

func TestAReplayOfNothingAsksNobody(t *testing.T) {
	t.Parallel()
	worker, server := script(t,
		map[string][]string{"/dead-letters/preview": {`{"total":0,"filter":{"queue":"orders"}}`}})
	play(t, onPlace, server, []step{
		{line: "dlq replay orders --why mended", want: "Nothing matches.", fails: "there is nothing to replay"},
	})
	require.Empty(t, worker.bodies["/dead-letters/replay"])
}

func TestTheSecondPersonSeesThePreviewAndConfirms(t *testing.T) {
	t.Parallel()
	worker, server := script(t, map[string][]string{
		"/dead-letters/preview": {`{"total":2,"filter":{"queue":"orders"}}`}, "/dead-letters/replay": {
			operation("waiting_for_approval", 0, ""),
		}, "/operations/id-1/preview": {`{"total":2}`},
		"/operations/id-1/approve": {
			`{"code":"changed","detail":"1 items match now."}`, operation("finished", 2, `"processed":2`),
		},
	})
	play(t, onPlace, server, []step{
		{line: replay, fails: "waits for the approval of somebody else"},
		{
			line: "operations approve id-1 --why checked", want: "DEAD LETTERS 2\n…Type id-1 to approve it:",
			fails: "nothing was changed",
		},
		{line: "operations approve id-1 --why checked", typed: "id-1\n", fails: "1 items match now. (changed)"},
		{line: "operations approve id-1 --why checked --yes", want: "2 processed"},
	})
	require.JSONEq(t, `{"expect":2,"why":"checked"}`, worker.bodies["/operations/id-1/approve"])
}

// A worker that may not change subscriptions records the pause. The command says that this is not all.
func TestAPauseThatIsOnPaperAloneFails(t *testing.T) {
	t.Parallel()
	server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(pauses.PauseState{
			Queue: "orders", Pause: &pause.Pause{
				Queue: "orders", Who: "ada", Why: "w\x1b[2J", At: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC),
			}, Subscription: pause.Pushing,
		})
	}))
	play(t, nil, server, []step{{
		line: "queues pause orders --why w --yes", want: `w\u001b[2J…run billhook admin switch orders, with your ` +
			`own credentials`, fails: "the subscription of orders is pushing, and should be paused",
	}})
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
		"e-1":                        `{"event_id":"e-1"}`,
		"--body body.json --queue q": `{"body":{"n":9007199254740993},"queue":"q"}`,
		"--message - --tenant t":     `{"message":{"typed":true},"tenant":"t"}`,
		"e-1 --catalog " + folder +
			string(filepath.Separator): `{"event_id":"e-1","catalog":{"products.yaml":"products: {}\n"}}`,
	} {
		play(t, asAda, server, []step{
			{
				line:  "events try " + strings.Replace(args, "body.json", filepath.Join(folder, "body.json"), 1),
				typed: `{"typed":true}`, want: "EVENT e-1\n",
			},
		})
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
	}), []step{
		{line: "products ls", want: "PRODUCT POINTS STATE FROM SINCE\nhat 250 active catalog -"},
		{line: "products set absent --points 4 --dry-run"},
		{line: "products set new --points 500 --why sold", want: "POINTS 500"},
		{
			line: "products set hat --points 300 --why dearer", want: "POINTS 250",
			fails: "nobody has answered; --yes does it without asking",
		},
		{
			line: "products set hat --points 300 --why dearer", typed: "yes\n", want: "Type hat to set it:",
			fails: "nothing was changed",
		},
		{line: "products set hat --points 300 --why dearer", typed: "hat\n", want: "POINTS 300"},
		{line: "products set hat --points 7 --why w --dry-run", want: "FROM store"},
		{line: "products set hat --points 6 --why w --json", fails: "--yes"},
		{line: "products show absent", fails: "product_unknown"},
		{line: "products retire hat --why gone", typed: "hat\n", want: "STATE retired"},
		{line: "products history hat", want: "retire token:ada gone"},
	})
}

func TestSearchNamesTheCommandThatShowsWhatItFinds(t *testing.T) {
	t.Parallel()
	server := listen(t, answering(`{"query":"auth0|u7","items":[{"kind":"customer","id":"c-7","path":"/v1/ops/customers/c-7"},
		{"kind":"account","id":"points:user:auth0|u7","path":"/v1/ops/accounts/points:user:auth0%7Cu7"}]}`))
	play(t, asAda, server, []step{
		{line: "search auth0|u7 --wide", want: "customers show c-7\n…accounts show 'points:user:auth0|u7'\n"},
	})
}

// job is an item of a list, whose columns but three can be left out.
type job struct {
	Created  string `show:"Created"`
	Queue    string `show:"Queue"`
	Event    string `show:"Event"`
	Type     string `show:"Type,less"`
	Attempts int    `show:"Attempts,less"`
	Result   string `show:"Result"`
	Why      string `show:"Why,less"`
}

// printed is a table of jobs on a screen.
func printed(width int, wide bool, jobs ...job) string {
	var out strings.Builder
	p := &program{stdout: &out, output: asTable, width: width, wide: wide}
	p.items(console.Columns[job](), reflect.ValueOf(jobs))
	return out.String()
}

func TestTableFitsTheScreenByLeavingColumnsOut(t *testing.T) {
	t.Parallel()
	jobs := []job{
		{
			"2026-11-22T12:05:04Z", "pay-refund-initiation", "7286d212-2d1c-541f-8d0d-f444efc5ed70", "refund", 1,
			"refunded", "",
		},
		{"2026-11-22T12:05:03Z", "orders-process", "order-7", "order.payment_confirmed", 2, "größer", ""},
	}
	require.Equal(t, `CREATED               QUEUE                  EVENT                                 RESULT    WHY
2026-11-22T12:05:04Z  pay-refund-initiation  7286d212-2d1c-541f-8d0d-f444efc5ed70  refunded  -
2026-11-22T12:05:03Z  orders-process         order-7                               größer    -
Left out: TYPE, ATTEMPTS. See all with --wide.
`, printed(98, false, jobs...))
	require.Contains(t, printed(110, false, jobs...), "Left out: TYPE.", "no more than it must")
	require.Contains(t, printed(200, false, jobs...), "RESULT    WHY\n", "nothing, where there is room")
	require.Equal(t, printed(200, false, jobs...), printed(80, true, jobs...), "and nothing with --wide")
}

func TestAListIsPrintedAsItIsAskedForAndAgainAndAgain(t *testing.T) {
	t.Parallel()
	server := listen(t,
		answering(`{"items":[{"product_id":"=1+1","tenant":"default","available":-5}],"next":""}`))
	for as, want := range map[string]string{
		"-o table": "=1+1 ", "-o json": `"product_id": "=1+1"`, "--json": `"product_id": "=1+1"`,
		"-o csv": "'=1+1,-5,",
	} {
		play(t, nil, server, []step{{line: "stock ls " + as, want: want}})
	}
	stock := listen(t, answering(`{"product_id":"hat","tenant":"default","available":7}`))
	play(t, nil, stock, []step{
		{line: "stock set hat --available 7 --why counted -o csv", typed: "hat\n", fails: "--yes"},
		{
			line: "stock set hat --available 7 --why counted -o csv --yes",
			want: "\nPRODUCT,AVAILABLE,RESERVED,SOLD\nhat,7,0,0\n",
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	p := programOf(t, nil, &out)
	waited := 0
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, 5*time.Second, every)
		if waited++; waited == 3 {
			stop()
			return nil
		}
		tick := make(chan time.Time, 1)
		tick <- time.Time{}
		return tick
	}
	require.NoError(t, p.execute(ctx, []string{"stock", "ls", "--watch=5s", "--server", server}))
	require.Equal(t, 3, strings.Count(out.String(), "=1+1"))
}

// A table of any list leaves columns out where there is no room, and of the first one nothing but the end of
// an id.
func TestNothingOfTheFirstColumnIsLost(t *testing.T) {
	t.Parallel()
	for _, o := range known().Operations {
		columns := slices.DeleteFunc(slices.Clone(o.Columns), func(c console.Column) bool { return c.Detail })
		if !o.List || len(columns) < 2 || console.Blocks(columns) {
			continue
		}
		const first = "its-first-column-is-one-of-forty-letters"
		list := reflect.ValueOf(o.Answer()).Elem().FieldByName("Items")
		operationstest.Fill(list, first)
		item := list.Index(0)
		var out strings.Builder
		p := programOf(t, nil, &out)
		p.commands()
		p.items(o.Columns, list)
		lines := strings.Split(out.String(), "\n")
		want := columns[0].Text(item.Interface())
		if columns[0].ID {
			want = want[:screen.Shortest]
		}
		require.True(t, strings.HasPrefix(lines[0], strings.ToUpper(columns[0].Label)), "%s: %s", o.Name, lines[0])
		require.True(t, strings.HasPrefix(lines[1], want+" ") || lines[1] == want, "%s: %s", o.Name, lines[1])
	}
}

const (
	came = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"PROCESSING","attempts":1,` +
		`"created_at":"2026-03-02T10:15:00Z"}`
	went = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,` +
		`"result":"credited","created_at":"2026-03-02T10:15:00Z"}`
	strange = `{"event_id":"an-id-that-is-long","queue":"orders","event_type":"order.paid","status":"FAILED",` +
		`"attempts":2,"reason":"a\u001b[2J\u202eb","created_at":"2026-03-02T10:15:01Z"}`
	later = `{"event_id":"e3","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,` +
		`"created_at":"2026-03-02T10:20:00Z"}`
)

// tailed is what a tail prints while a worker gives these answers, of which one of three digits is a status,
// and what it asks.
func tailed(t *testing.T, answers []string, args ...string) (printed string, asked []string, err error) {
	t.Helper()
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[len(asked)]
		if asked = append(asked, r.URL.RequestURI()); len(answer) > 3 {
			_, _ = io.WriteString(w, answer)
			return
		}
		status, _ := strconv.Atoi(answer)
		serve.Refuse(status, "told", "It says so.").Write(w)
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out strings.Builder
	p := programOf(t, map[string]string{"BILLHOOK_SERVER": worker}, &out)
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, tailEvery, every)
		if len(asked) == len(answers) {
			stop()
			return nil
		}
		over := make(chan time.Time)
		close(over)
		return over
	}
	err = p.execute(ctx, append([]string{"events", "tail"}, args...))
	return out.String(), asked, err
}

// page is a list, the newest event first.
func page(next string, lines ...string) string {
	return fmt.Sprintf(`{"items":[%s],"next":%q}`, strings.Join(lines, ","), next)
}

func TestATailPrintsWhatIsNewOrHasChanged(t *testing.T) {
	t.Parallel()
	answers := []string{page("", came), "503", "429", page("", strange, went), page("more", later), page("")}
	out, asked := filetest.Both(tailed(t, answers, "--queue", "orders"))(t)
	require.Equal(t, `2026-03-02T10:15:00Z orders e1 order.paid PROCESSING
The worker cannot be asked: It says so. (told)
The worker cannot be asked: It says so. (told)
2026-03-02T10:15:00Z orders e1 order.paid COMPLETED credited
2026-03-02T10:15:01Z orders an-id-that-is-long order.paid FAILED a\u001b[2J\u202eb
More has come in than is shown here; see: bin/billhook events ls
2026-03-02T10:20:00Z orders e3 order.paid COMPLETED
`, strings.ReplaceAll(strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' }), " "), " \n", "\n"))
	require.Equal(t, slices.Repeat([]string{"/v1/ops/events?queue=orders"}, 6), asked)

	out, _ = filetest.Both(tailed(t, answers, "--json"))(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[2], `"reason":"a\u001b[2J\u202eb"`)
}

func TestATailThatIsRefusedEnds(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]string{{"400"}, {"403"}, {"503"}, {page("", came), "400"}} {
		_, asked, err := tailed(t, answers)
		require.ErrorContains(t, err, "It says so.")
		require.Len(t, asked, len(answers))
	}
}
