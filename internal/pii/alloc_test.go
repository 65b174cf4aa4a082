//go:build !race

package pii_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

// Under the race detector conversions allocate, and pools forget at random.

//nolint:paralleltest // it counts allocations
func TestShapesAndMinimizationAllocateNothing(t *testing.T) {
	large, body, p := strings.Repeat("1", 1<<20), webhooktest.Order(16<<10), orders()
	optional := pii.NewProjection(p.Rules(), "body.total_amount", "body.currency", "body.lines[].price")
	dst := make([]byte, 0, len(body))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, value := range []string{
			"order-20260302-000001-and-more-than-32-bytes", "2026-03-02T10:01:00.123456789+01:00",
			"9223372036854775807", large,
		} {
			for _, rule := range []pii.Rule{
				pii.ID, pii.Code, pii.Currency, pii.Time, pii.Amount, pii.Integer, pii.Quantity,
			} {
				_ = rule.Valid(value)
			}
		}
		d, err := pii.Parse(body)
		require.NoError(t, err)
		_, _, err = optional.Minimize(dst, nil, d)
		require.NoError(t, err)
		_, err = p.Append(dst, body)
		require.NoError(t, err)
	}))
}

func TestALargeStringIsRefusedWithoutACopy(t *testing.T) { //nolint:paralleltest // it counts allocations
	p := orders()
	for _, unit := range []string{"1", `\u0031`} {
		body := []byte(`{"event_id":"` + strings.Repeat(unit, 1<<20) + `"}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.Append(nil, body)
		runtime.ReadMemStats(&after)
		require.EqualError(t, err, "pii: event_id: id")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
	}
}

func BenchmarkMinimize(b *testing.B) {
	p := orders()
	var dst []byte
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			order := webhooktest.Order(size)
			b.SetBytes(int64(len(order)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = p.Append(dst[:0], order)
			}
		})
	}
}

func BenchmarkDetect(b *testing.B) {
	for _, id := range []string{
		"411486491630370501", "2f3d0a11-1111-4111-8111-111111111111", "ORD-2025-001-002",
		"auth0|5f7c8ec7c33c6c004bbafe82", "4539148803436467",
	} {
		b.Run(id, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pii.Detect(pii.UID, id)
			}
		})
	}
}
