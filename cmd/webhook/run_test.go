package main

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunNamesEveryMistakeOfTheEnvironment(t *testing.T) {
	t.Parallel()
	values := map[string]string{"WEBHOOK_TOLERANCE_SECONDS": "0", "LOG_LEVEL": "LOUD"}
	err := run(t.Context(), func(name string) string { return values[name] }, io.Discard)
	require.ErrorContains(t, err, "GOOGLE_CLOUD_PROJECT")
	require.ErrorContains(t, err, "WEBHOOK_TOLERANCE_SECONDS")
	require.ErrorContains(t, err, "LogLevel")
	require.ErrorContains(t, err, "WEBHOOK_SECRET_PAYNOW")
}

func TestRunRefusesWeakSecretsByTheirVariables(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{"none": "", "a short one": "hunter2", "a short one while rotating": "a-secret-of-more-than-24-bytes,hunter2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := map[string]string{
				"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "WEBHOOK_SECRET_PAYNOW": secret,
			}
			err := run(t.Context(), func(name string) string { return values[name] }, io.Discard)
			require.ErrorContains(t, err, "WEBHOOK_SECRET_PAYNOW")
			require.ErrorContains(t, err, "WEBHOOK_SIGNING_SECRET", "all together")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestRunEndsWellWhenItIsToldTo(t *testing.T) {
	values := map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1",
		"WEBHOOK_SECRET_PAYNOW": "a-secret-of-more-than-24-bytes", "WEBHOOK_SIGNING_SECRET": "a-secret-of-more-than-24-bytes",
	}
	// The client libraries read these from the process itself.
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	t.Setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(name string) string { return values[name] }, writer) }()
	line := make([]byte, 4096)
	n, err := reader.Read(line)
	require.NoError(t, err)
	require.Contains(t, string(line[:n]), `"message":"listening"`)
	require.Contains(t, string(line[:n]), `"address":"127.0.0.1:`)
	stop()
	require.NoError(t, <-ended)
}
