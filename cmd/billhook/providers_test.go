package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page's file and sample are all that a new provider takes.
func TestAProviderIsAddedByFollowingItsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/providers.md")
	require.NoError(t, err)
	block := func(language string) string {
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
		require.NotNil(t, found, language)
		return string(found[1])
	}
	folder := shipped(t, "sources.yaml", func(text string) string { return text + "\n" })
	sample := filepath.Join(folder, "sample.json")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "providers"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "providers", "acme.yaml"), []byte(block("yaml")), 0o600))
	require.NoError(t, os.WriteFile(sample, []byte(block("json")), 0o600))
	set := map[string]string{"CATALOG_DIR": folder}
	_, err = say(t, set, "admin", "catalog", "check")
	require.NoError(t, err)
	said, err := say(t, set, "providers", "try", "acme", "-f", sample)
	require.NoError(t, err)
	require.Contains(t, said, `"total": "20.00"`)
	require.Regexp(t, `payment.customer.email +no mapping names it`, said)
	require.NotContains(t, said, "Brandvold")
	said, err = say(t, set, "listen", "acme")
	require.NoError(t, err)
	require.Contains(t, said, "http://127.0.0.1:8080/webhooks/acme")
	_, source, found := strings.Cut(said, "under sources:\n")
	require.True(t, found)
	source, _, _ = strings.Cut(source, "\n\n")
	sources := filepath.Join(folder, "sources.yaml")
	was, err := os.ReadFile(sources)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(sources, []byte(strings.Replace(string(was), "sources:\n", "sources:\n"+source+"\n", 1)), 0o600))
	_, err = say(t, set, "admin", "catalog", "check")
	require.NoError(t, err)
}
