package pii

import (
	"bytes"
	"slices"
)

// isGap reports whether people put the character between groups of digits.
func isGap(c byte) bool { return bytes.IndexByte([]byte(" -._:|/()"), c) >= 0 }

// A network is a range of first four digits, and how many digits its cards have, a bit each.
type network struct{ from, to, lengths int }

const (
	of12 = 1 << 12
	of13 = 1 << 13
	of14 = 1 << 14
	of15 = 1 << 15
	of16 = 1 << 16
	of19 = 1 << 19
)

// networks are those of ISO/IEC 7812 that have cards, but for the rare ones of 17 and 18 digits: so many ids
// have as many.
var networks = [...]network{
	{4000, 4999, of13 | of16 | of19},       // Visa, Elo, Dankort
	{5100, 5599, of16}, {2221, 2720, of16}, // Mastercard
	{3400, 3499, of15}, {3700, 3799, of15}, // American Express
	{3000, 3059, of14 | of16}, {3095, 3095, of14 | of16}, // Diners Club
	{3600, 3699, of14}, {3800, 3999, of14}, // the same
	{3528, 3589, of16},                     // JCB, RuPay
	{1800, 1800, of15}, {2131, 2131, of15}, // older JCB
	{6000, 6999, of16 | of19},                            // Discover, UnionPay, Maestro, RuPay, Elo
	{5000, 5099, of16 | of19}, {5600, 5899, of16 | of19}, // Maestro, Elo, Verve
	{5018, 5018, short}, {5020, 5020, short}, {5038, 5038, short}, {5600, 5899, of12},
	{5893, 5893, short}, {6304, 6304, short}, {6390, 6390, short}, {6759, 6759, short},
	{6761, 6763, short}, {604, 604, of12}, // short ones of Maestro
	{2200, 2205, of16}, {8100, 8299, of16}, // Mir and Borica; RuPay and UnionPay
	{8600, 8600, of16}, {9792, 9792, of16}, {9860, 9860, of16}, // Uzcard, Troy, Humo
}

const short = of12 | of13 | of14 | of15

// isCard reports whether digits are a card's number: of a network, and right by Luhn.
func isCard(digits []byte) bool {
	if len(digits) < 12 || len(digits) > 19 {
		return false
	}
	four := 100*pair(digits) + pair(digits[2:])
	known := slices.ContainsFunc(networks[:], func(n network) bool {
		return n.lengths&(1<<len(digits)) != 0 && four >= n.from && four <= n.to
	})
	return known && luhn(digits)
}

func luhn(digits []byte) bool {
	sum := 0
	for i := range digits {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// layouts are the groups that cards have: any grouping would take one dated id in ten for a card.
var layouts = [...][]int{
	{4, 4, 4, 4}, {4, 4, 4, 4, 1}, {4, 4, 4, 4, 2}, {4, 4, 4, 4, 3}, {4, 6, 5}, {4, 6, 4}, {4, 4, 4, 1}, {4, 4, 4, 2},
	{4, 4, 4, 3}, {8, 8}, {6, 13}, {6, 10}, {4, 4, 4},
}

func hasCard(value []byte, i int, text bool) bool {
	var digits [19]byte
	var sizes [5]int
	n, least := 0, 13
	if text {
		least = 12
	}
	for group := range sizes {
		from := n
		for i < len(value) && class[value[i]] == digit {
			if n == len(digits) {
				return false
			}
			digits[n] = value[i]
			n++
			i++
		}
		if i < len(value) && class[value[i]] == letter {
			return false
		}
		sizes[group] = n - from
		if n >= least && (group == 0 || isLaidOut(sizes[:group+1])) && isCard(digits[:n]) {
			return true
		}
		gap := i
		for i < len(value) && i-gap < 3 && isGap(value[i]) {
			i++
		}
		if i == gap || i == len(value) || class[value[i]] != digit {
			return false
		}
	}
	return false
}

func isLaidOut(sizes []int) bool {
	return slices.ContainsFunc(layouts[:], func(layout []int) bool { return slices.Equal(layout, sizes) })
}
