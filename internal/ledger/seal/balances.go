package seal

import (
	"context"
	"errors"
)

// Balance is the line of one control account and currency in a trial balance, in minor units.
// Opening and Closing are debits minus credits.
type Balance struct {
	Account  string `json:"account"`
	Currency string `json:"currency"`
	Opening  int64  `json:"opening"`
	Debit    int64  `json:"debit"`
	Credit   int64  `json:"credit"`
	Closing  int64  `json:"closing"`
}

// TrialBalance is what all entries of a tenant add up to in a period, such as 2026-11. Opening is
// what all earlier periods add up to.
type TrialBalance struct {
	Tenant string `json:"tenant"`
	Period string `json:"period"`
	// Seal is the number of the last seal that is summed up here; Unsealed counts the entries that
	// are, and have no seal.
	Seal     int64     `json:"seal"`
	Unsealed int64     `json:"unsealed"`
	Balances []Balance `json:"balances"`
}

// Balances sums up a period. It reads one seal for each period up to it, and what is not sealed.
// Every entry that was posted before the call counts exactly once, also while a sealer runs.
func Balances(_ context.Context, _ Reader, tenant, period string) (TrialBalance, error) {
	return TrialBalance{Tenant: tenant, Period: period}, errors.ErrUnsupported
}

// List returns a page of a tenant's seals, the newest first: those below the number before, 0 for
// the newest. next is the before of the next page, 0 on the last.
func List(_ context.Context, _ Reader, _ string, _ int64, _ int) (seals []Seal, next int64, err error) {
	return nil, 0, errors.ErrUnsupported
}
