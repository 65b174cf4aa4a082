package ledger_test

import (
	"testing"

	"billhook/internal/apps/ledger"
)

func BenchmarkRead(b *testing.B) {
	doc := document(ledger.Post(paid()))
	for b.Loop() {
		if _, err := ledger.Read(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLeafHash(b *testing.B) {
	entry, err := ledger.Read(document(ledger.Post(paid())))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := entry.LeafHash(); err != nil {
			b.Fatal(err)
		}
	}
}
