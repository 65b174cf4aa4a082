package serve

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABuildHasItsCommitAndAMarkOfChangedFilesAndAReleaseIsOnePrintableWord(t *testing.T) {
	t.Parallel()
	const commit, long = "0123456789abcdef0123456789abcdef01234567", "v0.0.0-20261122150000-0123456789ab+dirty"
	revision := debug.BuildSetting{Key: "vcs.revision", Value: commit}
	for name, test := range map[string]struct {
		settings                  []debug.BuildSetting
		version, commit, released string
	}{
		"a release": {[]debug.BuildSetting{revision}, "v1.4.0", "0123456789ab", "v1.4.0"},
		"a change": {
			[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, "(devel)", "0123456789ab+", "devel",
		},
		"without the repository": {nil, long, "unknown", strings.ReplaceAll(long, "+", ".")},
		"with a long version":    {nil, strings.Repeat("v", 80), "unknown", strings.Repeat("v", maxVersion)},
	} {
		build := buildOf(&debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings})
		require.Equal(t, Build{Version: test.version, Commit: test.commit, Go: runtime.Version()}, build, name)
		release := build.Release("1a2b3c4d")
		require.Regexp(t, `^[A-Za-z0-9.:-]{1,64}$`, release)
		require.Equal(t, test.released+":1a2b3c4d", release)
	}
	require.Equal(t, "(devel)", buildOf(&debug.BuildInfo{}).Version)
}
