// Package money owns the exact conversion between minor units in an int64 and the contract's decimal string
// with the digits of ISO 4217. It has no floats, rounding, exchange or locale: an amount has one spelling.
package money

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Errors of this package, whose texts never hold an amount.
var (
	// ErrCurrency: the code is not upper-case ISO 4217, or its currency has no minor unit.
	ErrCurrency = errors.New("money: unknown currency")
	// ErrAmount: the string is not the one spelling of an amount of the currency.
	ErrAmount = errors.New("money: not an amount of the currency")
	// ErrRange: the amount does not fit in an int64 of minor units.
	ErrRange = errors.New("money: amount out of range")
)

// Max is the largest amount, in minor units, so that sums of thousands of amounts fit in an int64.
const Max = 1_000_000_000_000_000

// Parse reads a decimal string as minor units of the currency: "10.00" USD is 1000, "1000" JPY is 1000,
// "1.000" KWD is 1000. It accepts only the spelling that Format writes. The error wraps ErrCurrency,
// ErrAmount or ErrRange.
func Parse(decimal, currency string) (int64, error) {
	exponent, ok := Exponent(currency)
	if !ok {
		return 0, ErrCurrency
	}
	unsigned, negative := strings.CutPrefix(decimal, "-")
	whole, fraction, pointed := strings.Cut(unsigned, ".")
	shaped := pointed == (exponent > 0) && len(fraction) == exponent && whole != "" &&
		(whole == "0" || whole[0] != '0')
	if !shaped || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, ErrAmount
	}
	sign := decimal[:len(decimal)-len(unsigned)]
	minor, err := strconv.ParseInt(sign+whole+fraction, 10, 64)
	switch {
	case err != nil: // it consists of digits, so only its size can be wrong
		return 0, ErrRange
	case negative && minor == 0:
		return 0, ErrAmount
	}
	return minor, nil
}

// Format writes an amount in minor units as the decimal string that Parse reads. The error is ErrCurrency.
func Format(minor int64, currency string) (string, error) {
	exponent, ok := Exponent(currency)
	if !ok {
		return "", ErrCurrency
	}
	text, sign := strconv.AppendInt(make([]byte, 0, 24), minor, 10), 0
	if minor < 0 {
		sign = 1
	}
	if short := sign + 1 + exponent - len(text); short > 0 {
		text = slices.Insert(text, sign, []byte("0000")[:short]...)
	}
	if exponent > 0 {
		text = slices.Insert(text, len(text)-exponent, '.')
	}
	return string(text), nil
}

// Text formats an amount for people. A unit that ISO 4217 does not have, such as points, has no decimals.
func Text(minor int64, currency string) string {
	text, err := Format(minor, currency)
	if err != nil {
		return strconv.FormatInt(minor, 10)
	}
	return text
}

// Exponent returns the number of digits of a currency's minor unit by ISO 4217; ok reports whether it has
// one. The table is not CLDR's, which would read amounts in ALL, COP, IDR and others a hundred times too
// large. ANG and BGN have left ISO 4217 but stay here, so that orders in them can be refunded.
func Exponent(currency string) (exponent int, ok bool) {
	switch currency {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX",
		"UYI", "VND", "VUV", "XAF", "XOF", "XPF":
		return 0, true
	case "AED", "AFN", "ALL", "AMD", "ANG", "AOA", "ARS", "AUD", "AWG", "AZN",
		"BAM", "BBD", "BDT", "BGN", "BMD", "BND", "BOB", "BOV", "BRL", "BSD", "BTN",
		"BWP", "BYN", "BZD", "CAD", "CDF", "CHE", "CHF", "CHW", "CNY", "COP", "COU",
		"CRC", "CUP", "CVE", "CZK", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB", "EUR",
		"FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GTQ", "GYD", "HKD", "HNL",
		"HTG", "HUF", "IDR", "ILS", "INR", "IRR", "JMD", "KES", "KGS", "KHR", "KPW",
		"KYD", "KZT", "LAK", "LBP", "LKR", "LRD", "LSL", "MAD", "MDL", "MGA", "MKD",
		"MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MXV", "MYR", "MZN",
		"NAD", "NGN", "NIO", "NOK", "NPR", "NZD", "PAB", "PEN", "PGK", "PHP", "PKR",
		"PLN", "QAR", "RON", "RSD", "RUB", "SAR", "SBD", "SCR", "SDG", "SEK", "SGD",
		"SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB", "TJS",
		"TMT", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH", "USD", "USN", "UYU", "UZS",
		"VED", "VES", "WST", "XAD", "XCD", "XCG", "YER", "ZAR", "ZMW", "ZWG":
		return 2, true
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3, true
	case "CLF", "UYW":
		return 4, true
	default:
		return 0, false
	}
}
