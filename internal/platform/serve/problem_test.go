package serve_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

var (
	errGone    = errors.New("gone")
	errRefused = errors.New("refused")
	mapping    = serve.ErrorMapping{
		Known: []serve.KnownError{
			{Of: errGone, As: serve.Refuse(http.StatusNotFound, "gone", "It is not here.")},
			{Of: errRefused, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		},
		Last: serve.Refuse(http.StatusServiceUnavailable, "down", "Ask again.").After(5),
	}
)

func TestAnErrorIsAnsweredAsItsMappingSays(t *testing.T) {
	t.Parallel()
	own := serve.Refuse(http.StatusConflict, "own", "As it says itself.")
	for name, test := range map[string]struct {
		err  error
		want *serve.Problem
	}{
		"the first":                          {errGone, mapping.Known[0].As},
		"one that wraps it":                  {fmt.Errorf("read: %w", errGone), mapping.Known[0].As},
		"the first of two":                   {errors.Join(errRefused, errGone), mapping.Known[0].As},
		"one that says why":                  {fmt.Errorf("%w: too long", errRefused), serve.Refuse(http.StatusUnprocessableEntity, "refused", "too long")},
		"any other":                          {errors.New("marta@example.com"), mapping.Last},
		"a problem":                          {own, own},
		"one that wraps a problem":           {fmt.Errorf("read: %w", own), own},
		"a problem before every known error": {errors.Join(errGone, own), own},
	} {
		require.Equal(t, test.want, mapping.Problem(test.err), name)
	}
}

func TestAProblemIsADocumentWithItsHeaders(t *testing.T) {
	t.Parallel()
	p := serve.Refuse(http.StatusServiceUnavailable, "down", "Ask again.").After(5)
	p.Authenticate, p.Violations = "Bearer", []serve.Violation{{Path: "a.b", Rule: "id"}}
	w := httptest.NewRecorder()
	p.Write(w)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, []string{"5", "Bearer", "application/problem+json", "no-store"}, []string{
		w.Header().Get("Retry-After"), w.Header().Get("WWW-Authenticate"), w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"),
	})
	require.JSONEq(t, `{"type":"urn:billhook:problem:down","title":"Service Unavailable","status":503,"detail":"Ask again.","code":"down","violations":[{"path":"a.b","rule":"id"}]}`, w.Body.String())

	w = httptest.NewRecorder()
	mapping.Known[0].As.Write(w)
	require.NotContains(t, w.Header(), "Retry-After")
	require.NotContains(t, w.Header(), "Www-Authenticate")
}

func TestAnAnswerIsTheValueOrTheErrorsAnswer(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errGone} {
		w := httptest.NewRecorder()
		serve.Answer(http.StatusCreated, func(*http.Request) (map[string]int, error) { return map[string]int{"n": 1}, failure },
			func(w http.ResponseWriter, _ *http.Request, err error) { mapping.Problem(err).Write(w) })(w, nil)
		if failure == nil {
			require.Equal(t, http.StatusCreated, w.Code)
			require.JSONEq(t, `{"n":1}`, w.Body.String())
			continue
		}
		require.Equal(t, http.StatusNotFound, w.Code)
	}
}
