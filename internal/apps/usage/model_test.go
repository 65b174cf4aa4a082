package usage_test

import (
	"testing"

	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/platform/store/storetest"
)

func TestUsageIsTheSumOfItsEntriesOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	usagetest.Run(t, storetest.Open)
}
