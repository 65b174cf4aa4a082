package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/compose/operations"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/filetest"
)

const opsToken = "0123456789abcdef01234567"

// asAda is the environment of a person with a token, and onPlace of one on the worker's machine, local:ada.
var (
	asAda   = map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada", "COLUMNS": "200"}
	onPlace = map[string]string{"OPS_OPERATOR": "ada", "COLUMNS": "200"}
)

func listen(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func answering(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }
}

func serveAPI(t *testing.T, apps operations.Apps) (address string) {
	t.Helper()
	server := &api.Server{
		Catalog: operations.All(apps), Log: slog.New(slog.DiscardHandler), Author: access.Author,
		Now: apps.Reads.Now, Store: apps.Reads.Store,
	}
	router := chi.NewRouter()
	router.Use(access.Access{Tokens: []string{opsToken}, OpenOnLoopback: true}.Guard)
	server.Routes(router)
	return listen(t, router)
}

func say(t *testing.T, environment map[string]string, args ...string) (string, error) {
	t.Helper()
	return sayWith(t, environment, func(*program) {}, args...)
}

func sayWith(
	t *testing.T, environment map[string]string, change func(*program), args ...string,
) (string, error) {
	t.Helper()
	var out strings.Builder
	p := programOf(t, environment, &out)
	change(p)
	err := p.execute(t.Context(), args)
	return out.String(), err
}

// succeeds is the output of a command that does not fail.
func succeeds(t *testing.T, environment map[string]string, args ...string) string {
	t.Helper()
	out, err := say(t, environment, args...)
	require.NoError(t, err, out)
	return out
}

func programOf(t *testing.T, environment map[string]string, out io.Writer) *program {
	t.Helper()
	p := filetest.Must(newProgram(func(name string) string { return environment[name] }, out))(t)
	p.load = func(dir string) (*catalog.Catalog, error) {
		if dir == "" {
			return catalogtest.Shipped(), nil // which is read once
		}
		return catalog.Load(dir)
	}
	return p
}

// step is a command, a person's answer to its question, and what is printed, or how the command fails. Texts
// with … between them are printed one after the other. answer is that of a worker of the step's own.
type step struct{ line, typed, want, fails, answer string }

// walk has the steps of a name in testdata/walks.yaml, with names in braces replaced.
func walk(t *testing.T, name string, pairs ...string) (steps []step) {
	t.Helper()
	names := strings.NewReplacer(pairs...)
	for _, s := range filetest.YAML[map[string][]map[string]string](t, "testdata", "walks.yaml")[name] {
		one := step{s["line"], s["typed"], s["want"], s["fails"], s["answer"]}
		one.line, one.want, one.fails = names.Replace(one.line), names.Replace(one.want), names.Replace(one.fails)
		steps = append(steps, one)
	}
	require.NotEmpty(t, steps, name)
	return steps
}

// play runs commands one after the other. It compares tables with columns that are one space apart.
func play(t *testing.T, as map[string]string, server string, steps []step) {
	t.Helper()
	for _, s := range steps {
		if s.answer != "" {
			server = listen(t, answering(s.answer))
		}
		args := append(strings.Fields(s.line), "--server", server)
		out, err := sayWith(t, as, func(p *program) { p.stdin = strings.NewReader(s.typed) }, args...)
		if s.fails == "" {
			require.NoError(t, err, s.line)
		} else {
			require.ErrorContains(t, err, s.fails, s.line)
		}
		var printed []string
		for line := range strings.Lines(out) {
			printed = append(printed, strings.Join(strings.Fields(line), " "))
		}
		rest := "\n" + strings.Join(printed, "\n") + "\n"
		for want := range strings.SplitSeq(s.want, "…") {
			at := strings.Index(rest, want)
			require.GreaterOrEqual(t, at, 0, "%s prints no %q in %s", s.line, want, rest)
			rest = rest[at+len(want):]
		}
	}
}
