package pii

import (
	"slices"
	"strconv"
	"strings"
)

// ibans is SWIFT's registry (ISO 13616): digits (n), letters (a) or either (c) behind the check digits.
const ibans = `
AD8n12c AE19n AL8n16c AT16n AZ4a20c BA16n BE12n BG4a6n8c BH4a14c BI23n BR23n1a1c BY4c4n16c CH5n12c CR18n CY8n16c
CZ20n DE18n DJ23n DK14n DO4c20n EE16n EG25n ES20n FI14n FK2a12n FO14n FR10n11c2n GB4a14n GE2a16n GI4a15c GL14n
GR7n16c GT24c HN4a20n HR17n HU24n IE4a14n IL19n IQ4a15n IS22n IT1a10n12c JO4a4n18c KW4a22c KZ3n13c LB4n20c LC4a24c
LI5n12c LT16n LU3n13c LV4a13c LY21n MC10n11c2n MD20c ME18n MK3n10c2n MN16n MR23n MT4a5n18c MU4a19n3a NI4a20n NL4a10n
NO11n OM3n16c PK4a16c PL24n PS4a21c PT21n QA4a21c RO4a16c RS18n RU14n15c SA2n18c SC4a20n3a SD14n SE20n SI15n SK20n
SM1a10n12c SO19n ST21n SV4a20n TL19n TN20n TR6n16c UA6n19c VA18n VG4a16n XK16n YE4a4n18c`

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

// isIBAN reports whether an IBAN begins at i: its country's format, and the right remainder of 97. Of letters
// in both cases a third must be digits, since random ids are made of such letters.
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
			if n < 2 || isAlphanumeric(c) || !isAlphanumeric(value[i-1]) || (c != ' ' && (n%4 != 0 || !isGap(c))) {
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
