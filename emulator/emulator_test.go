package emulator_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/emulator"
)

func TestEmulatorsStartAnswerAndAreGoneAfterStop(t *testing.T) {
	t.Parallel()
	sdk, err := emulator.Find(t.Context())
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skipf("left out: %v", err)
	}
	require.NoError(t, err)
	for name, start := range map[string]func(context.Context) (*emulator.Process, error){
		"the Pub/Sub emulator":   func(ctx context.Context) (*emulator.Process, error) { return sdk.StartPubSub(ctx, 0, nil) },
		"the Firestore emulator": func(ctx context.Context) (*emulator.Process, error) { return sdk.StartFirestore(ctx, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := start(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Stop())
			require.NoError(t, p.Stop(), "stopping twice is fine")
			_, err = (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", p.Addr())
			require.Error(t, err, "nothing listens any more")
		})
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	t.Setenv("CLOUDSDK_ROOT_DIR", t.TempDir())
	_, err := emulator.Find(t.Context())
	require.ErrorIs(t, err, emulator.ErrNotInstalled)
}
