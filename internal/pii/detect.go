package pii

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Detect returns the first kind of personal data in a value of the rule's shape: email, ip, iban, card or
// phone. It is less strict with ids, which may be order numbers, than with text.
func Detect(rule Rule, value string) (found string, ok bool) {
	found = detect(rule, []byte(value))
	return found, found != ""
}

func detect(r Rule, value []byte) string {
	switch r.name {
	case "id", "uid", "code":
	default: // other shapes cannot hold personal data
		return ""
	}
	digits, colons, dots, at, text := 0, 0, 0, false, false
	for _, c := range value {
		switch of := class[c]; {
		case of == letter:
		case of == digit:
			digits++
		case c == ':':
			colons++
		case c == '.':
			dots++
		case of == 0:
			text = true
			at = at || c == '@'
		}
	}
	switch {
	case digits == len(value):
		return digitsAlone(r, value)
	case at && hasEmail(value):
		return "email"
	case dots >= 3 && hasIPv4(value), colons >= 2 && hasIPv6(value):
		return "ip"
	case digits < leastDigits || isAccount(value): // most ids end here
		return ""
	}
	return detectNumber(value, text)
}

// leastDigits is the number of an IBAN's check digits: all its other characters may be letters.
const leastDigits = 2

// digitsAlone checks an id of digits, which may be a serial number or a card's. Snowflake ids have 17 to 20
// digits, and one in ten passes a card's check, so only a uid is checked at that length.
func digitsAlone(r Rule, value []byte) string {
	longest := 16
	if r == UID {
		longest = 19
	}
	switch n := len(value); {
	case isCardOf(13, longest, value):
		return "card"
	case r == UID && n >= 12 && n <= 15 && value[0] == '0' && value[1] == '0' && value[2] != '0':
		return "phone" // no country code begins with 0: with three zeros it is a serial number
	}
	return ""
}

func isCardOf(shortest, longest int, value []byte) bool {
	return len(value) >= shortest && spelled(value, longest, digit, digit) && isCard(value)
}

// isAccount: only Facebook's account numbers, among the identity providers', are as long as a card's.
func isAccount(value []byte) bool {
	account, ok := bytes.CutPrefix(value, []byte("facebook|"))
	return ok && spelled(account, 17, digit, digit)
}

func isAlphanumeric(c byte) bool { return class[c]&(letter|digit) != 0 }

func hasEmail(value []byte) bool {
	for i, c := range value {
		if c != '@' || i == 0 || value[i-1] == ' ' {
			continue
		}
		end := i + 1
		for end < len(value) && (class[value[end]]&(letter|digit|mark) != 0 || value[end] >= 0x80) {
			end++
		}
		domain := bytes.TrimRight(value[i+1:end], "._-") // the dot may end a sentence
		if dot := bytes.LastIndexByte(domain, '.'); dot > 0 && len(domain)-dot > 2 {
			return true
		}
	}
	return false
}

// detectNumber checks words that are digits, or letters and then digits, because IBANs, card numbers and
// phone numbers begin so. It takes other mixtures for random ids.
func detectNumber(value []byte, text bool) string {
	phoneFrom := 0 // the digits before this belong to a number that was no phone number
	for start := 0; start < len(value); {
		if !isAlphanumeric(value[start]) {
			start++
			continue
		}
		// A UUID's groups can look like any number, so only the text around it is checked.
		if isUUID(value[start:]) {
			start += uuidLength
			continue
		}
		first := start
		for first < len(value) && class[value[first]] == letter {
			first++
		}
		end := first
		for end < len(value) && class[value[end]] == digit {
			end++
		}
		switch {
		case end == first: // a word without digits
			if text && first-start >= 2 && isIBAN(value, first-2) {
				return "iban"
			}
		case first-start >= 2 && isIBAN(value, first-2):
			return "iban"
		case hasCard(value, first, text):
			return "card"
		case first >= phoneFrom:
			n := readNumber(value, first, len(value), phoneGaps, text)
			if n.isPhone(value, start, text) {
				return "phone"
			}
			phoneFrom = n.to
		}
		for start = end; start < len(value) && isAlphanumeric(value[start]); {
			start++
		}
	}
	return ""
}

const uuidLength = 36

func isUUID(value []byte) bool {
	return len(value) >= uuidLength && value[8] == '-' && uuid.Validate(string(value[:uuidLength])) == nil
}

func isHex(c byte) bool {
	return class[c] == digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')
}

// hasIPv4: four numbers with leading zeros, or with a fifth number, are a date or a version.
func hasIPv4(value []byte) bool {
	for run := range strings.FieldsFuncSeq(string(value), func(r rune) bool {
		return r != '.' && (r < '0' || r > '9')
	}) {
		for numbers := range strings.SplitSeq(run, "..") {
			if _, err := netip.ParseAddr(strings.Trim(numbers, ".")); err == nil {
				return true
			}
		}
	}
	return false
}

// hasIPv6: an address may begin the value, or follow a mark, a label and a colon, or other letters.
func hasIPv6(value []byte) bool {
	for start := 0; start < len(value); {
		if !isHex(value[start]) && value[start] != ':' {
			start++
			continue
		}
		end, colons := start, 0
		for end < len(value) && (isHex(value[end]) || value[end] == ':') {
			if value[end] == ':' {
				colons++
			}
			end++
		}
		if colons >= 2 && (end == len(value) || !isAlphanumeric(value[end])) && endsInIPv6(value, start, end) {
			return true
		}
		start = end
	}
	return false
}

const longestIPv6 = 39

func endsInIPv6(value []byte, start, end int) bool {
	if value[end-1] == ':' && value[end-2] != ':' {
		end-- // the colon belongs to the sentence
	}
	word := start // the start of the letters and digits around the run's start
	for word > 0 && isAlphanumeric(value[word-1]) {
		word--
	}
	group := start // the end of the first group, which may have other letters in front
	for value[group] != ':' {
		group++
	}
	for i := max(start, end-longestIPv6); i < end; i++ {
		colons, full, ok := isIPv6(value[i:end])
		switch {
		case !ok:
		case i == word: // it begins the value or follows a mark
			return true
		case value[i-1] == ':':
			// A label with two colons looks like a short form such as ::b.
			if colons >= 3 || isGiven(value[i:end]) {
				return true
			}
		case i < group && (i == start || group-start > 4) && spelled(value[word:i], len(value), letter, letter):
			// After a label that ends in a to f, longer forms are ambiguous, too.
			if full || isGiven(value[i:end]) {
				return true
			}
		}
	}
	return false
}

// isIPv6: eight groups of two digits are not an address but an EUI-64 or another list of bytes.
func isIPv6(address []byte) (colons int, full, ok bool) {
	text := string(address)
	if _, err := netip.ParseAddr(text); err != nil || text == "::" {
		return 0, false, false
	}
	full = !strings.Contains(text, "::")
	pairs := !slices.ContainsFunc(strings.Split(text, ":"), func(group string) bool { return len(group) != 2 })
	return strings.Count(text, ":"), full, !full || (full && !pairs)
}

// isGiven: the first group has four digits, in a range that is assigned: 2000::/3, fc00::/7, fe80::/10.
func isGiven(address []byte) bool {
	if len(address) < 5 || address[4] != ':' {
		return false
	}
	first, second := address[0]|0x20, address[1]|0x20 // lower case; digits do not change
	return first == '2' || first == '3' || (first == 'f' && (second == 'c' || second == 'd' || second == 'e'))
}
