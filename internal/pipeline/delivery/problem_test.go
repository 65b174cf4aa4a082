package delivery_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/delivery"
	"billhook/internal/retry"
)

func TestWhatARefusalSaysIsKeptAsFarAsItMay(t *testing.T) {
	t.Parallel()
	const document = "application/problem+json"
	for name, test := range map[string]struct{ contentType, body, said string }{
		"all of it": {
			document, `{"type":"https://pay.example/limits","title":"The limit is reached","status":422,"code":"limit_reached","detail":"of Ilse","instance":"/x"}`,
			`type "https://pay.example/limits", code "limit_reached", title "The limit is reached"`,
		},
		"its title alone":       {document + "; charset=utf-8", `{"title":"No plan gold"}`, `title "No plan gold"`},
		"an address":            {document, `{"title":"ilse@example.org is unknown","code":"unknown"}`, `code "unknown", title left out: email`},
		"a card":                {document, `{"title":"card 4111 1111 1111 1111 is refused"}`, `title left out: card`},
		"what moves the cursor": {document, `{"title":"\u001b[2Jfine"}`, `title left out: it does not print`},
		"what turns the text":   {document, `{"title":"a\u202eb"}`, `title left out: it does not print`},
		"a novel":               {document, `{"title":"` + strings.Repeat("ä", 150) + `"}`, `title "` + strings.Repeat("ä", 100) + `"...`},
		"a book":                {document, `{"title":"` + strings.Repeat("a", 9<<10) + `"}`, ``},
		"numbers for texts":     {document, `{"type":1,"code":["a"],"title":null}`, ``},
		"nothing":               {document, ``, ``},
		"no object":             {document, `"limit_reached"`, ``},
		"a body of no problem":  {"application/json", `{"title":"The limit is reached"}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuses := target(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = fmt.Fprint(w, test.body)
			})
			for _, most := range []int64{0, 16 << 10} {
				_, err := refuses.Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: most})
				require.EqualError(t, err, "callee_refused_422", "the text of the error holds nothing of it")
				if most == 0 || name != "a book" { // of an answer that is wanted more is read
					require.Equal(t, test.said, retry.Said(err))
				}
			}
		})
	}
}

// watched is what a watcher was told.
type watched struct {
	mu  sync.Mutex
	all []string
}

func (a *watched) Answered(_ string, status int, code string, _ time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, fmt.Sprint(status, " ", code))
}

// That there is no such event is what was asked.
func TestAnEventThatIsNotKnownIsAnAnswerAndNoFailure(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]string{404: "", 405: "", 501: "", 503: "callee_failed_503", 422: "callee_refused_422"} {
		asked := 0
		declared := service
		declared.Breaker.Failures, declared.Breaker.Rest = 1, time.Hour
		at, err := delivery.New(delivery.Config{Target: declared, Secret: secret, Now: clock, BaseURL: callee(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(status)
		})})
		require.NoError(t, err)
		t.Cleanup(at.Close)
		watcher := &watched{}
		delivery.Targets{"service": at}.Watch(watcher)
		for range 2 {
			_, done, _ := at.Post(payment).Reconcile(t.Context(), event())
			require.False(t, done)
		}
		require.Equal(t, strings.TrimSpace(fmt.Sprint(status, " ", code)), strings.TrimSpace(watcher.all[0]))
		require.Equal(t, status == 503, asked == 1, "%d opens the breaker, or does not", status)
	}
}
