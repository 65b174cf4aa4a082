package seal

import (
	"context"
	"errors"
)

// The kinds of finding.
const (
	// Changed: the document is not what was sealed.
	Changed = "changed"
	// Missing: the document is gone.
	Missing = "missing"
	// Added: the document claims a place that no seal gives it.
	Added = "added"
	// Moved: the document stands at another place than the seal gives it.
	Moved = "moved"
	// Unmarked: the entry has neither a seal nor the mark by which a sealer finds it.
	Unmarked = "unmarked"
	// Late: the entry was posted in a period that was closed.
	Late = "late"
)

// Finding is one thing that verification found wrong.
type Finding struct {
	Kind   string `json:"kind"`
	Tenant string `json:"tenant"`
	// Document is the id of the document it is about, with its collection.
	Document string `json:"document"`
	// Seal is the number of the seal in which it was found; 0: none.
	Seal int64 `json:"seal,omitzero"`
	// Detail says what is wrong, in words without a stored value.
	Detail string `json:"detail"`
}

// Verified is a page of a verification: what was looked at, what was found.
type Verified struct {
	Seals    int64     `json:"seals"`
	Entries  int64     `json:"entries"`
	Findings []Finding `json:"findings"`
	// Next is where the next page begins; empty: this was the last.
	Next string `json:"next"`
}

// Verify checks all of a tenant's chain, and hands over each finding. The error is that of reading.
func Verify(ctx context.Context, from Reader, tenant string, report func(Finding)) error {
	for at := ""; ; {
		page, err := VerifyPage(ctx, from, tenant, at)
		if err != nil {
			return err
		}
		for _, finding := range page.Findings {
			report(finding)
		}
		if at = page.Next; at == "" {
			return nil
		}
	}
}

// VerifyPage checks a bounded part of a tenant's chain: from the beginning, or where the page
// before ended. The pages of one verification, each begun at the Next of the one before, check
// everything.
func VerifyPage(_ context.Context, _ Reader, _, _ string) (Verified, error) {
	return Verified{}, errors.ErrUnsupported
}

// Tenants returns the tenants that have a head or a seal, sorted.
func Tenants(_ context.Context, _ Reader) ([]string, error) {
	return nil, errors.ErrUnsupported
}
