package serve

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABuildSaysItsCommitAndWhetherFilesDiffered(t *testing.T) {
	t.Parallel()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, test := range map[string]struct {
		settings []debug.BuildSetting
		version  string
		want     Build
	}{
		"a release":              {[]debug.BuildSetting{{Key: "vcs.revision", Value: commit}}, "v1.4.0", Build{Version: "v1.4.0", Commit: "0123456789ab"}},
		"a change":               {[]debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}}, "(devel)", Build{Version: "(devel)", Commit: "0123456789ab+"}},
		"without the repository": {nil, "", Build{Version: "(devel)", Commit: "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.Go = runtime.Version()
			require.Equal(t, test.want, buildOf(&debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}))
		})
	}
}

type coded struct{}

func (coded) Error() string { return "coded" }
func (coded) ExitCode() int { return 2 }

func TestAProgramExitsWithTheCodeOfItsErrorElseWith1(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, ExitCode(errors.New("plain")))
	require.Equal(t, 2, ExitCode(fmt.Errorf("wrapped: %w", coded{})))
	require.Equal(t, 2, ExitCode(errors.Join(errors.New("plain"), coded{})))
}
