package delivery_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/retry"
)

// outcomeOf posts an event that is answered with a status, 0 being none, and says what becomes of it in the words
// of the page. A target that is asked did it.
func outcomeOf(t *testing.T, status int, post catalog.Post) (outcome string, kept bool) {
	t.Helper()
	target := offline(t, nil, func(r *http.Request) (*http.Response, error) {
		switch {
		case r.Method == http.MethodGet:
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		case status == 0:
			return nil, errors.New("no answer")
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"60"}}, Body: http.NoBody}, nil
	})
	_, err := target.Post(post).Do(t.Context(), event())
	means := retry.Decide(err)
	switch {
	case err == nil:
		return "delivered", false
	case means.Class.Terminal():
		return "a dead letter at once", false
	}
	require.True(t, means.Counts, "%d: an attempt", status)
	return "tried again", retry.Asked(err) > 0
}

func TestThePageForReceiversSaysWhatAnAnswerLeadsTo(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/receiving.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## What an answer leads to\n")
	section, _, _ = strings.Cut(section, "\n## ")
	says := map[string]string{} // by status, or by its class: 4xx
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for answer := range strings.SplitSeq(cells[1], ",") {
			answer = strings.TrimPrefix(strings.TrimSpace(answer), "another ")
			require.Empty(t, says[answer], "%s stands there once", answer)
			says[answer] = cells[2]
		}
	}
	var respected []string
	for status := range 600 {
		row, ok := says[fmt.Sprint(status)]
		switch {
		case status == 0:
			row, ok = says["no answer"]
		case status < 200:
			continue
		case !ok:
			row, ok = says[fmt.Sprint(status/100, "xx")]
		}
		require.True(t, ok, status)
		asked, kept := outcomeOf(t, status, payment)
		unasked, _ := outcomeOf(t, status, catalog.Post{Target: payment.Target, Path: payment.Path})
		for _, outcome := range []string{"delivered", "a dead letter at once", "tried again"} {
			require.Equal(t, slices.Contains([]string{asked, unasked}, outcome), strings.Contains(row, outcome), "%d: %s", status, row)
		}
		if kept {
			respected = append(respected, fmt.Sprint(status))
		}
	}
	require.Contains(t, section, "Each time is an attempt,", "outcomeOf looks")
	require.Contains(t, section, "`Retry-After` of "+strings.Join(respected, " and ")+" ")
}
