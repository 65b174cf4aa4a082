package webhook

import "billhook/internal/contract"

// functions are what a provider's declaration may call: each makes an amount in the minor unit of those that
// its paths name. given reports whether there is one; the error is a *contract.Invalid.
var functions = map[string]func(amounts []amount) (minor int64, given bool, err error){
	"refunded": refunded,
}

type amount struct {
	path  string
	minor int64
	given bool
}

// refunded: of the payment's amount and what was refunded of it, the smaller one above 0 counts.
func refunded(amounts []amount) (minor int64, given bool, err error) {
	for i, a := range amounts {
		switch {
		case !a.given:
		case a.minor < 0:
			return 0, false, contract.Broken(a.path, "negative")
		case i == 0, a.minor > 0 && (!given || minor <= 0 || a.minor < minor):
			minor, given = a.minor, true
		}
	}
	return minor, given, nil
}
