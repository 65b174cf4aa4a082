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
)

const opsToken = "0123456789abcdef01234567"

// asAda is the environment of somebody with a token. As local:ada she is known by her place on the worker's
// machine.
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

// succeeds is what a command prints that does not fail.
func succeeds(t *testing.T, environment map[string]string, args ...string) string {
	t.Helper()
	out, err := say(t, environment, args...)
	require.NoError(t, err, out)
	return out
}

func programOf(t *testing.T, environment map[string]string, out io.Writer) *program {
	t.Helper()
	p, err := newProgram(func(name string) string { return environment[name] }, out)
	require.NoError(t, err)
	p.load = func(dir string) (*catalog.Catalog, error) {
		if dir == "" {
			return catalogtest.Shipped(), nil // which is read once
		}
		return catalog.Load(dir)
	}
	return p
}

// step is a line that a person types, what she types when she is asked, and what is printed, or how the line
// fails. Texts with … between them are printed one behind the other.
type step struct{ line, typed, want, fails string }

// play runs lines one after the other. The columns of tables are one space apart in what it compares.
func play(t *testing.T, as map[string]string, server string, steps []step) {
	t.Helper()
	for _, s := range steps {
		out, err := sayWith(t, as, func(p *program) { p.stdin = strings.NewReader(s.typed) },
			append(strings.Fields(s.line), "--server", server)...)
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
