package terraform_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

// The programs bound what they read at once by a quarter of their memory, and do not know
// how much that is.
func TestTheBodyBudgetIsAQuarterOfAnInstance(t *testing.T) {
	t.Parallel()
	variables, err := os.ReadFile("variables.tf")
	require.NoError(t, err)
	found := regexp.MustCompile(`memory = "(\d+)Mi"`).FindAllStringSubmatch(string(variables), -1)
	require.Len(t, found, 2, "the webhook service's, and the workers'")
	for _, memory := range found {
		mebibytes, err := strconv.ParseInt(memory[1], 10, 64)
		require.NoError(t, err)
		require.EqualValues(t, 4*serve.DefaultBodyBudget, mebibytes<<20)
	}
}
