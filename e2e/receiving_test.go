package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/signature"
)

// TestTheProgramsForReceiversTellAGenuineDelivery runs those of docs/receiving.md.
func TestTheProgramsForReceiversTellAGenuineDelivery(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-24-bytes"
	signer, err := signature.NewSigner(signature.Generic, secret)
	require.NoError(t, err)
	body := []byte(`{"event_id":"e1","name":"ü"}`)
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			command := example(t, language, "receiver")
			for name, test := range map[string]struct {
				after   time.Duration
				body    []byte
				change  func(headers map[string]string)
				genuine bool
			}{
				"genuine":              {0, body, nil, true},
				"another body":         {0, append([]byte(" "), body...), nil, false},
				"too old":              {-6 * time.Minute, body, nil, false},
				"too early":            {6 * time.Minute, body, nil, false},
				"another time":         {0, body, func(h map[string]string) { h["X-Webhook-Timestamp"] = fmt.Sprint(time.Now().Unix() + 1) }, false},
				"no time":              {0, body, func(h map[string]string) { h["X-Webhook-Timestamp"] = "" }, false},
				"no signature":         {0, body, func(h map[string]string) { h["X-Webhook-Signature"] = "" }, false},
				"part of a signature":  {0, body, func(h map[string]string) { h["X-Webhook-Signature"] = h["X-Webhook-Signature"][:62] }, false},
				"what is no signature": {0, body, func(h map[string]string) { h["X-Webhook-Signature"] = "ü" }, false},
			} {
				headers := signer.Sign("", body, time.Now().Add(test.after)) // a program may take long to start
				if test.change != nil {
					test.change(headers)
				}
				run := exec.CommandContext(t.Context(), command[0], append(command[1:], headers["X-Webhook-Timestamp"], headers["X-Webhook-Signature"])...)
				run.Env, run.Stdin = append(os.Environ(), "DELIVERY_SIGNING_SECRET="+secret), bytes.NewReader(test.body)
				said, err := run.CombinedOutput()
				require.Equal(t, test.genuine, err == nil, "%s: %s", name, said)
				require.Empty(t, said, "%s: no error but the answer", name)
			}
		})
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "receiving.md"))
	require.NoError(t, err)
	for _, ending := range []string{"go", "py", "ts"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", "examples", "receiver", "receiver."+ending))
		require.NoError(t, err)
		require.Contains(t, string(page), string(text), "the page has the program as it is")
	}
}
