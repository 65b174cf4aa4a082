package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/serve"
)

func TestALargeBufferIsNotKeptForTheNextRequest(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{leastBody: true, mostKept: true, mostKept + 1: false, 1 << 20: false} {
		s := &Service{bodies: serve.NewBudget(1 << 20)}
		require.True(t, s.bodies.Claim(1<<20))
		b := &buffers{body: body{bytes: make([]byte, size), claimed: 1 << 20}, minimized: make([]byte, size), encoded: make([]byte, size)}
		s.release(b)
		for _, buffer := range [][]byte{b.body.bytes, b.minimized, b.encoded} {
			require.Equal(t, kept, buffer != nil, size)
		}
		require.Zero(t, s.bodies.Held())
		require.Zero(t, b.body.claimed)
	}
}
