package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
)

// partner answers what a test says.
type partner struct{ status int }

func (p *partner) Post(context.Context, endpoints.Address, string, []byte) (int, error) {
	return p.status, retry.HTTPStatus(p.status)
}

func (p *partner) Check(_ context.Context, address string) error {
	if !strings.HasPrefix(address, "https://") {
		return fmt.Errorf("%w: an endpoint is called by https", endpoints.ErrInvalid)
	}
	return nil
}

func TestEndpointsAreKeptFromATerminal(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at, ids := time.Date(2126, 3, 2, 10, 15, 0, 0, time.UTC), 0
	clock := func() time.Time { at = at.Add(time.Second); return at }
	next := func() string { ids++; return fmt.Sprint("id-", ids) }
	there := &partner{status: 204}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: clock}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
		Endpoints: &endpoints.Keeper{Store: db, Poster: there, OldSecretFor: 24 * time.Hour, Now: clock, NewID: next, NewSecret: func() string { return "whsec_" + next() }},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	say := func(input string, args ...string) (string, error) {
		var out strings.Builder
		root, err := commands(func(name string) string { return map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}[name] }, &out)
		require.NoError(t, err)
		root.SetIn(strings.NewReader(input))
		root.SetArgs(append(args, "--server", server.URL))
		err = root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, step := range []struct {
		input, arguments string
		want, fails      string
	}{
		{arguments: "endpoints add https://a.example/hooks --id a --events invoice.*,order.# --why partner", want: "a of tenant default is enabled and called at https://a.example/hooks for invoice.* order.#.\nIts secret, which is not shown again: whsec_id-1\n"},
		{arguments: "endpoints add https://b.example/hooks --tenant t1 --why partner", want: "of tenant t1 is enabled"},
		{arguments: "endpoints add https://a.example/hooks --id a --why twice", fails: "endpoint_exists"},
		{arguments: "endpoints add http://a.example/hooks --why plain", fails: "called by https"},
		{arguments: "endpoints add https://a.example/hooks", fails: "why"},
		{arguments: "endpoints ls --tenant default", want: "a         enabled  -       -              invoice.* order.#  default  https://a.example/hooks\n"},
		{arguments: "endpoints test a", want: "a has answered 204 after 1000 ms.\n"},
		{arguments: "endpoints rotate a --why leaked", want: "It gets a new secret.", fails: "nothing was changed"},
		{arguments: "endpoints rotate a --why leaked --dry-run", want: "It gets a new secret."},
		{input: "a\n", arguments: "endpoints rotate a --why leaked", want: "Its secret, which is not shown again: whsec_id-"},
		{arguments: "endpoints show a", want: "The secret before the last rotation signs too, until 2126-03-03"},
		{arguments: "endpoints disable a --why noisy --yes", want: "a of tenant default is disabled"},
		{arguments: "endpoints ls --state disabled", want: "a         disabled  by_hand"},
		{arguments: "endpoints ls --state odd", fails: "none of disabled, failing"},
		{arguments: "endpoints ls --state failing --tenant t1", fails: "not both"},
		{arguments: "endpoints enable a --why asked", want: "a of tenant default is enabled"},
		{arguments: "endpoints enable a", fails: "why"},
		{input: "no\n", arguments: "endpoints rm a --why gone", fails: "nothing was changed"},
		{input: "a\n", arguments: "endpoints rm a --why gone", want: "a is removed.\n"},
		{arguments: "endpoints show a", fails: "endpoint_unknown"},
		{arguments: "endpoints rm a --why gone --yes", fails: "endpoint_unknown"},
	} {
		out, err := say(step.input, strings.Fields(step.arguments)...)
		if step.fails == "" {
			require.NoError(t, err, step.arguments)
		} else {
			require.ErrorContains(t, err, step.fails, step.arguments)
		}
		require.Contains(t, out, step.want, step.arguments)
	}
	there.status = 410
	out, err := say("", "endpoints", "add", "https://c.example", "--id", "c", "--why", "w", "--json")
	require.NoError(t, err)
	require.True(t, json.Valid([]byte(out)))
	out, err = say("", "endpoints", "test", "c")
	require.NoError(t, err, "that it does not answer is an answer")
	require.Contains(t, out, "c has not taken it: callee_")
	for _, args := range [][]string{{"ls"}, {"show", "c"}, {"test", "c"}, {"rotate", "c", "--why", "w", "--yes"}, {"disable", "c", "--why", "w", "--yes"}, {"enable", "c", "--why", "w"}, {"rm", "c", "--why", "w", "--yes"}} {
		out, err := say("", append([]string{"endpoints", "--json"}, args...)...)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(out)), "one document: %s", out)
		if args[0] != "rotate" {
			require.NotContains(t, out, "whsec_")
		}
	}
}
