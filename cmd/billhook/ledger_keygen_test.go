package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger/seal"
)

// TestAProofIsCheckedByAStranger has a worker sign with a made key, and the proof checked by the other
// part.
func TestAKeyIsMadeForThePersonWhoAsks(t *testing.T) {
	t.Parallel()
	out, err := say(t, nil, "ledger", "keygen", "--name", "shop.example.com/books")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^  PRIVATE\+KEY\+shop\.example\.com/books\+[0-9a-f]{8}\+\S+$`, out)
	verifier := regexp.MustCompile(`(?m)^  (shop\.example\.com/books\+[0-9a-f]{8}\+\S+)$`).FindStringSubmatch(out)
	require.Len(t, verifier, 2)

	one, another := keygen(t, "shop.example.com/books"), keygen(t, "shop.example.com/books")
	require.Equal(t, "shop.example.com/books", one.Name)
	require.NotEqual(t, one.Private, another.Private)
	require.NotEqual(t, one.Verifier, verifier[1])

	for _, name := range []string{"", "two words", "a+b", "line\nbreak"} {
		_, err := say(t, nil, "ledger", "keygen", "--name", name)
		require.ErrorIs(t, err, seal.ErrKey, "%q", name)
	}
	_, err = say(t, nil, "ledger", "keygen")
	require.ErrorContains(t, err, `required flag(s) "name" not set`)
}

// The page of the books shows each command that people use, with flags and arguments that it takes.
func TestThePageOfTheBooksShowsCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/ledger.md")
	require.NoError(t, err)
	quoted := regexp.MustCompile(`"[^"]*"|<[^>]*>`)
	shown := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^billhook (ledger [^#\n]*)`).FindAllStringSubmatch(string(page), -1) {
		root, err := commands(func(string) string { return "" }, io.Discard)
		require.NoError(t, err)
		command, rest, err := root.Find(strings.Fields(quoted.ReplaceAllString(line[1], "x")))
		require.NoError(t, err, line[1])
		require.NoError(t, command.ParseFlags(rest), line[1])
		require.NoError(t, command.ValidateArgs(command.Flags().Args()), line[1])
		shown[command.Name()] = true
	}
	for _, name := range []string{"balances", "statement", "show", "export", "verify", "prove", "check-proof", "close", "periods", "reopen", "revert"} {
		require.True(t, shown[name], name)
	}
}
