package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACleanupCountsAllPagesBeforeItRemovesAny(t *testing.T) {
	t.Parallel()
	const first, second, third = "dry_run=true&older_than=58d", "dry_run=true&older_than=58d&page=p2", "dry_run=false&older_than=58d"
	const fourth = "dry_run=false&older_than=58d&page=p3"
	answers := map[string]string{
		first:  `{"looked_at":500,"removed":2,"remembered":4,"dry_run":true,"next":"p2"}`,
		second: `{"looked_at":20,"removed":1,"remembered":0,"dry_run":true,"next":""}`,
		third:  `{"looked_at":500,"removed":2,"remembered":4,"dry_run":false,"next":"p3"}`,
		fourth: `{"looked_at":20,"removed":1,"remembered":0,"dry_run":false,"next":""}`,
	}
	for name, test := range map[string]struct {
		args  []string
		asked []string
		fails string
		says  string
	}{
		"a dry run removes nothing":     {[]string{"--dry-run"}, []string{first, second}, "", "3 records of 520 have expired and would be removed; 4 are as old and stay.\n"},
		"nobody says yes":               {nil, []string{first, second}, "nothing was changed", "Type 3 to remove them: "},
		"without a question":            {[]string{"--yes"}, []string{first, second, third, fourth}, "", "3 records are removed.\n"},
		"as JSON, for which none asks":  {[]string{"--json"}, []string{first, second}, "--yes", ""},
		"as JSON, all pages as one":     {[]string{"--json", "--yes"}, []string{first, second, third, fourth}, "", `"removed": 3`},
		"an age that is none is misuse": {[]string{"--older-than", "soon"}, nil, "--older-than takes an age", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var asked []string
			worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, r.URL.RawQuery)
				_, _ = w.Write([]byte(answers[r.URL.RawQuery]))
			}))
			t.Cleanup(worker.Close)
			out, err := say(t, nil, append([]string{"events", "cleanup", "--older-than", "58d", "--server", worker.URL}, test.args...)...)
			if test.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.fails)
			}
			require.Contains(t, out, test.says)
			require.Equal(t, test.asked, asked)
		})
	}
}
