package pii

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// People write these between groups of digits; in a phone number only phoneGaps.
const (
	gaps      = phoneGaps + ":|"
	phoneGaps = " -._/()"
)

func isGap(c byte, gaps string) bool { return strings.IndexByte(gaps, c) >= 0 }

// A network is a range of the first four digits; lengths has one bit for each length of its cards.
type network struct{ from, to, lengths int }

const (
	of12 = 1 << 12
	of13 = 1 << 13
	of14 = 1 << 14
	of15 = 1 << 15
	of16 = 1 << 16
	of19 = 1 << 19
)

// networks are the ISO/IEC 7812 ranges that have cards, without the rare cards of 17 and 18 digits, because
// many ids have that length.
var networks = [...]network{
	{4000, 4999, of13 | of16 | of19}, // Visa, Elo, Dankort
	{5100, 5599, of16},
	{2221, 2720, of16}, // Mastercard
	{3400, 3499, of15},
	{3700, 3799, of15}, // American Express
	{3000, 3059, of14 | of16},
	{3095, 3095, of14 | of16}, // Diners Club
	{3600, 3699, of14},
	{3800, 3999, of14}, // the same
	{3528, 3589, of16}, // JCB, RuPay
	{1800, 1800, of15},
	{2131, 2131, of15},        // older JCB
	{6000, 6999, of16 | of19}, // Discover, UnionPay, Maestro, RuPay, Elo
	{5000, 5099, of16 | of19},
	{5600, 5899, of16 | of19}, // Maestro, Elo, Verve
	{5018, 5018, short},
	{5020, 5020, short},
	{5038, 5038, short},
	{5600, 5899, of12},
	{5893, 5893, short},
	{6304, 6304, short},
	{6390, 6390, short},
	{6759, 6759, short},
	{6761, 6763, short},
	{604, 604, of12}, // short ones of Maestro
	{2200, 2205, of16},
	{8100, 8299, of16}, // Mir and Borica; RuPay and UnionPay
	{8600, 8600, of16},
	{9792, 9792, of16},
	{9860, 9860, of16}, // Uzcard, Troy, Humo
}

const short = of12 | of13 | of14 | of15

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
		d := int(digits[len(digits)-1-i]-'0') << (i % 2)
		sum += d/10 + d%10
	}
	return sum%10 == 0
}

// layouts are the groups on cards: if any grouping counted, one dated id in ten would be a card.
var layouts = [...][]int{
	{4, 4, 4, 4},
	{4, 4, 4, 4, 1},
	{4, 4, 4, 4, 2},
	{4, 4, 4, 4, 3},
	{4, 6, 5},
	{4, 6, 4},
	{4, 4, 4, 1},
	{4, 4, 4, 2},
	{4, 4, 4, 3},
	{8, 8},
	{6, 13},
	{6, 10},
	{4, 4, 4},
}

func hasCard(value []byte, i int, text bool) bool {
	number, n, least := readNumber(value, i, 5, gaps, false), 0, 13
	if text {
		least = 12
	}
	for group, size := range number.sizes[:number.groups] {
		if n += size; n > len(number.digits) {
			return false
		}
		if n >= least && (group == 0 || isLaidOut(number.sizes[:group+1])) && isCard(number.digits[:n]) {
			return true
		}
	}
	return false
}

func isLaidOut(sizes []int) bool {
	return slices.ContainsFunc(layouts[:], func(layout []int) bool { return slices.Equal(layout, sizes) })
}

// ibans is SWIFT's registry (ISO 13616): digits (n), letters (a) or either (c) after the check digits.
const ibans = `AD8n12c AE19n AL8n16c AT16n AZ4a20c BA16n BE12n BG4a6n8c BH4a14c BI23n BR23n1a1c BY4c4n16c
		CH5n12c CR18n CY8n16c CZ20n DE18n DJ23n DK14n DO4c20n EE16n EG25n ES20n FI14n FK2a12n FO14n FR10n11c2n
		GB4a14n GE2a16n GI4a15c GL14n GR7n16c GT24c HN4a20n HR17n HU24n IE4a14n IL19n IQ4a15n IS22n IT1a10n12c
		JO4a4n18c KW4a22c KZ3n13c LB4n20c LC4a24c LI5n12c LT16n LU3n13c LV4a13c LY21n MC10n11c2n MD20c ME18n
		MK3n10c2n MN16n MR23n MT4a5n18c MU4a19n3a NI4a20n NL4a10n NO11n OM3n16c PK4a16c PL24n PS4a21c PT21n
		QA4a21c RO4a16c RS18n RU14n15c SA2n18c SC4a20n3a SD14n SE20n SI15n SK20n SM1a10n12c SO19n ST21n SV4a20n
		TL19n TN20n TR6n16c UA6n19c VA18n VG4a16n XK16n YE4a4n18c`

var ibanFormats = func() (formats [26 * 26][]byte) {
	for text := range strings.FieldsSeq(ibans) {
		format := []byte{letter, letter, digit, digit}
		for rest := text[2:]; rest != ""; {
			i := strings.IndexAny(rest, "nac")
			n, _ := strconv.Atoi(rest[:i]) // the registry above is a constant
			kind := map[byte]byte{'n': digit, 'a': letter, 'c': letter | digit}[rest[i]]
			format = append(format, slices.Repeat([]byte{kind}, n)...)
			rest = rest[i+1:]
		}
		formats[int(text[0]-'A')*26+int(text[1]-'A')] = format
	}
	return formats
}()

// isIBAN reports whether an IBAN begins at i: it has its country's format and remainder 1 modulo 97. If it
// mixes upper and lower case, like random ids, a third of it must be digits.
func isIBAN(value []byte, i int) bool {
	format := ibanFormats[int(value[i]&0x1f-1)*26+int(value[i+1]&0x1f-1)]
	var iban [34]byte
	n, digits, upper, lower := 0, 0, 0, 0
	for ; n < len(format); i++ {
		if i == len(value) {
			return false
		}
		c := value[i]
		switch kind := class[c] & format[n]; {
		case kind == digit:
			digits++
		case kind == 0:
			fits := c == ' ' || (n%4 == 0 && isGap(c, gaps))
			if n < 2 || !fits || !isAlphanumeric(value[i-1]) {
				return false
			}
			continue
		case c >= 'a':
			lower++
			c -= 'a' - 'A'
		default:
			upper++
		}
		iban[n] = c
		n++
	}
	if n == 0 || (i < len(value) && isAlphanumeric(value[i])) || (upper > 0 && lower > 0 && 3*digits < n) {
		return false
	}
	return mod97(iban[:n]) == 1
}

func mod97(iban []byte) int {
	sum := 0
	for i := range iban {
		c := iban[(i+4)%len(iban)]
		if class[c] == digit {
			sum = (sum*10 + int(c-'0')) % 97
		} else {
			sum = (sum*100 + int(c-'A') + 10) % 97
		}
	}
	return sum
}

// number may be a card or phone number: groups of digits with one to three gap characters between them.
type number struct {
	digits [19]byte
	// n counts all digits, also those beyond the array.
	n        int
	sizes    [6]int
	groups   int
	from, to int
	// dotted: single dots separate all groups.
	dotted bool
}

// readNumber reads at most that many groups. If extended, a phone number may end before an extension.
func readNumber(value []byte, i, most int, gaps string, extended bool) (n number) {
	n.from, n.dotted = i, true
	for {
		from := n.n
		for i < len(value) && class[value[i]] == digit {
			if n.n < len(n.digits) {
				n.digits[n.n] = value[i]
			}
			n.n++
			i++
		}
		// The x of 555-123-4567x12 begins an extension.
		if i < len(value) && class[value[i]] == letter && (!extended || value[i]|0x20 != 'x') {
			n.n = from
			return n
		}
		if n.groups < len(n.sizes) {
			n.sizes[n.groups] = n.n - from
		}
		n.groups++
		n.to = i
		for i < len(value) && i-n.to < 3 && isGap(value[i], gaps) {
			i++
		}
		if n.groups == most || i == n.to || i == len(value) || class[value[i]] != digit {
			return n
		}
		n.dotted = n.dotted && i == n.to+1 && value[n.to] == '.'
	}
}

// Words before a phone number; the last four count only in text, because in ids they are prefixes.
var phoneWords = [...]string{
	"tel", "phone", "telephone", "mobile", "msisdn", "whatsapp", "gsm", "fax", "cell", "mob", "call", "sms",
}

// named reports whether the word before the number, with or without a gap, is one of phoneWords.
func (n *number) named(value []byte, text bool) bool {
	end := n.from
	for end > 0 && n.from-end < 3 && !isAlphanumeric(value[end-1]) {
		end--
	}
	start := end
	for start > 0 && class[value[start-1]] == letter {
		start--
	}
	words := phoneWords[:]
	if !text {
		words = words[:8]
	}
	return (start == 0 || class[value[start-1]] != digit) &&
		slices.ContainsFunc(words, func(word string) bool {
			return bytes.EqualFold(value[start:end], []byte(word))
		})
}

// isDated: the number begins with a year or a date, as ids and times do.
func (n *number) isDated() bool {
	year := func(i int) bool {
		return (n.digits[i] == '1' && n.digits[i+1] == '9') || (n.digits[i] == '2' && n.digits[i+1] == '0')
	}
	switch size := n.sizes[0]; {
	case size == 4 || size == 8:
		return year(0)
	case size <= 2 && n.groups >= 3 && n.sizes[1] <= 2 && n.sizes[2] == 4:
		return year(size + n.sizes[1])
	}
	return false
}

// isPhone reports whether it is a phone number; word is where its word begins. Order ids have digits and
// dashes, so in an id it needs a phone word, a +, 00 in front, or dotted groups; text allows more forms.
func (n *number) isPhone(value []byte, word int, text bool) bool {
	if n.groups == 0 || n.groups > len(n.sizes) || n.n < 7 || n.n > 17 {
		return false
	}
	before := n.from
	for before > 0 && value[before-1] == '(' {
		before--
	}
	digits := n.digits[:n.n]
	// no country code begins with 0
	zeros := n.n >= 10 && digits[0] == '0' && digits[1] == '0' && digits[2] != '0'
	dated := n.isDated()
	switch {
	case before > 0 && value[before-1] == '+':
		return n.n <= 15
	case !dated && (text || n.n >= 9) && n.named(value, text):
		return true
	case word < n.from || (word > 1 && class[value[word-1]] == mark):
		return false // the end of a name
	case !text && n.groups == 1:
		return zeros && n.n >= 12 && n.n <= 15
	case !text:
		return n.dotted && !dated && n.isNational()
	case zeros:
		// 00 as a group before only one other is the seconds of a time before their fraction.
		return n.sizes[0] > 2 || n.groups > 2
	case n.sizes[0] == 3 && digits[0] == '0' && digits[1] == '1' && digits[2] == '1':
		return n.n >= 10
	case dated || n.n > 12:
		return false
	case digits[0] == '0' && digits[1] != '0', before < n.from && bytes.HasPrefix(value[n.from+n.sizes[0]:],
		[]byte{')'}):
		return n.n >= 9
	case n.groups == 2:
		return n.n >= 9 && n.n <= 11 && n.sizes[0] >= 3 && n.sizes[1] >= 3 && n.sizes[0] <= 5
	}
	return n.isNational()
}

func (n *number) isNational() bool {
	return n.groups >= 3 && n.n >= 9 && n.n <= 11 &&
		!slices.ContainsFunc(n.sizes[1:n.groups], func(size int) bool { return size < 2 })
}
