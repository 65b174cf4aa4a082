package seal

import (
	"errors"
	"fmt"
	"maps"
	"math"

	"billhook/internal/apps/ledger"
)

// ErrOverflow: a sum does not fit in 64 bits.
var ErrOverflow = errors.New("seal: a sum is too large")

// add adds a line to the totals of its period.
func add(periods map[string]Totals, period string, line ledger.Line) error {
	return addSum(periods, period, ledger.Control(line.Account), line.Currency, Sum{line.Debit, line.Credit})
}

func addSum(periods map[string]Totals, period, account, currency string, more Sum) error {
	if periods[period] == nil {
		periods[period] = Totals{}
	}
	if periods[period][account] == nil {
		periods[period][account] = map[string]Sum{}
	}
	sum := periods[period][account][currency]
	if more.Debit < 0 || more.Credit < 0 || sum.Debit > math.MaxInt64-more.Debit || sum.Credit > math.MaxInt64-more.Credit {
		return fmt.Errorf("%w: %s", ErrOverflow, period)
	}
	periods[period][account][currency] = Sum{sum.Debit + more.Debit, sum.Credit + more.Credit}
	return nil
}

// addAll adds totals to those of a period.
func addAll(periods map[string]Totals, period string, more Totals) error {
	for account, sums := range more {
		for currency, sum := range sums {
			if err := addSum(periods, period, account, currency, sum); err != nil {
				return err
			}
		}
	}
	return nil
}

// size counts the sums of a period.
func (t Totals) size() int {
	n := 0
	for _, sums := range t {
		n += len(sums)
	}
	return n
}

// sums counts the sums of all periods.
func sums(periods map[string]Totals) int {
	n := 0
	for _, totals := range periods {
		n += totals.size()
	}
	return n
}

// clone returns totals that share nothing with these.
func (t Totals) clone() Totals {
	all := make(Totals, len(t))
	for account, sums := range t {
		all[account] = maps.Clone(sums)
	}
	return all
}
