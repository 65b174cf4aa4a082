package emulator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNewestJarIsTheOneWithTheHighestVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "lib/e-0.8.20-all.jar", newest([]string{"lib/e-0.8.9-all.jar", "lib/e-0.8.20-all.jar", "lib/e-0.8.3-all.jar"}))
}
