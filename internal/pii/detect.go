package pii

import (
	"bytes"

	"github.com/google/uuid"
)

// Detect names the first kind of personal data that a value of a rule's shape holds: email, ip, iban, card or
// phone. Of text it finds more than of an id, which may be an order's number.
func Detect(rule Rule, value string) (found string, ok bool) {
	found = detect(rule, []byte(value))
	return found, found != ""
}

func detect(r Rule, value []byte) string {
	switch r.shape {
	case id, uid, code:
	default: // no room for anything personal
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

// leastDigits are the check digits of an IBAN, which may have letters in all other places.
const leastDigits = 2

// digitsAlone looks at an id of digits: a serial number, or a card's. 17 to 20 are as long as flakes, of
// which one in ten passes a card's check: they are looked at in a uid alone.
func digitsAlone(r Rule, value []byte) string {
	longest := 16
	if r.shape == uid {
		longest = 19
	}
	switch n := len(value); {
	case isCardOf(13, longest, value):
		return "card"
	case r.shape == uid && n >= 12 && n <= 15 && value[0] == '0' && value[1] == '0' && value[2] != '0':
		return "phone" // no country's code begins with 0: more zeros are a serial number's
	}
	return ""
}

// isCardOf reports whether the value is a card's number, of so many digits.
func isCardOf(shortest, longest int, value []byte) bool {
	return len(value) >= shortest && spelled(value, longest, digit, digit) && isCard(value)
}

// isAccount: Facebook's account numbers are as long as a card's; no other provider's are.
func isAccount(value []byte) bool {
	account, ok := bytes.CutPrefix(value, []byte("facebook|"))
	return ok && spelled(account, 17, digit, digit)
}

func isAlphanumeric(c byte) bool { return class[c]&(letter|digit) != 0 }

// hasEmail: something, an @, and a domain with a dot and a top level of two or more.
func hasEmail(value []byte) bool {
	for i, c := range value {
		if c != '@' || i == 0 || value[i-1] == ' ' {
			continue
		}
		end := i + 1
		for end < len(value) && (class[value[end]]&(letter|digit|mark) != 0 || value[end] >= 0x80) {
			end++
		}
		domain := bytes.TrimRight(value[i+1:end], "._-") // a sentence may end here
		if dot := bytes.LastIndexByte(domain, '.'); dot > 0 && len(domain)-dot > 2 {
			return true
		}
	}
	return false
}

// detectNumber looks at words that are digits, behind letters or nothing: an IBAN, a card's number or a
// phone's begins so. Other mixtures are random ids.
func detectNumber(value []byte, text bool) string {
	phoneFrom := 0 // the digits before this belong to a number that was no phone's
	for start := 0; start < len(value); {
		if !isAlphanumeric(value[start]) {
			start++
			continue
		}
		// The groups of a UUID look like anything: only what stands around one counts.
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
			n := readNumber(value, first, text)
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

// isUUID reports whether the value begins with 8-4-4-4-12 hex digits.
func isUUID(value []byte) bool {
	return len(value) >= uuidLength && value[8] == '-' && uuid.Validate(string(value[:uuidLength])) == nil
}

func isHex(c byte) bool {
	return class[c] == digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')
}
