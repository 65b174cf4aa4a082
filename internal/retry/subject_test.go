package retry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/retry"
)

func TestAVerdictNamesWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given, want []string
	}{
		"nothing":                      {nil, nil},
		"one":                          {[]string{"411486491630370501"}, []string{"411486491630370501"}},
		"what has not an id's shape":   {[]string{"ilse@example.org", "", "a b", "hat", strings.Repeat("9", 129)}, []string{"hat"}},
		"more than anybody would read": {[]string{"1", "2", "3", "4", "5", "6"}, []string{"1", "2", "3", "4", "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cause := errors.New("why")
			err := fmt.Errorf("credit: %w", retry.BadRequest("unknown_product", cause, test.given...))
			require.Equal(t, retry.Verdict{Class: 400, Reason: "unknown_product", Counts: true}, retry.Decide(err))
			require.ErrorIs(t, err, cause)
			var marked *retry.Error
			require.ErrorAs(t, err, &marked)
			require.ElementsMatch(t, test.want, marked.Subjects)
			require.EqualError(t, marked, "unknown_product: why", "ids stand beside the text")
		})
	}
}
