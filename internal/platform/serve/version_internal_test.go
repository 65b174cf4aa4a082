package serve

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABuildHasItsCommitAndAMarkOfChangedFiles(t *testing.T) {
	t.Parallel()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, test := range map[string]struct {
		settings []debug.BuildSetting
		version  string
		want     Build
	}{
		"a release": {
			[]debug.BuildSetting{{Key: "vcs.revision", Value: commit}},
			"v1.4.0",
			Build{Version: "v1.4.0", Commit: "0123456789ab"},
		},
		"a change": {
			[]debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}},
			"(devel)",
			Build{Version: "(devel)", Commit: "0123456789ab+"},
		},
		"without the repository": {nil, "", Build{Version: "(devel)", Commit: "unknown"}},
	} {
		test.want.Go = runtime.Version()
		require.Equal(t, test.want,
			buildOf(&debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}), name)
	}
}

func TestAReleaseIsOnePrintableWord(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.4.0":  "v1.4.0",
		"(devel)": "devel",
		"v0.0.0-20261122150000-0123456789ab+dirty": "v0.0.0-20261122150000-0123456789ab.dirty",
		strings.Repeat("v", 80):                    strings.Repeat("v", maxVersion),
	} {
		release := Build{Version: version}.Release("1a2b3c4d")
		require.Regexp(t, `^[A-Za-z0-9.:-]{1,64}$`, release)
		require.Equal(t, want+":1a2b3c4d", release)
	}
}
