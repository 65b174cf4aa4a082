package delivery_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
