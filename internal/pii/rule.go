// Package pii keeps personal data out of messages. Projections pass only the fields that a contract names,
// rules bound their shapes, and detectors find personal data that has an allowed shape. No rule allows free
// text, and no error contains a value.
package pii

import (
	"bytes"
	"cmp"
	"time"
)

// Rule bounds one allowed scalar; the zero Rule allows nothing.
type Rule struct{ name string }

// The rules.
var (
	// ID is a letter or digit, then up to 127 of those and . _ : -, but not a bare card number.
	ID = Rule{"id"}
	// UID is an identity provider's id of a person: up to 128 letters, digits and . _ : | -, such as
	// auth0|5f7c8ec7c33c6c004bbafe82. A uid of digits is checked like any text.
	UID = Rule{"uid"}
	// Code is a name in a protocol: a letter, then up to 63 letters, digits and . _ -.
	Code = Rule{"code"}
	// Currency is three capital letters.
	Currency = Rule{"currency"}
	// Time is RFC 3339, with at most nanoseconds.
	Time = Rule{"timestamp"}
	// Amount is a decimal number in a string, of at most 24 characters, but not a card number.
	Amount = Rule{"amount"}
	// Integer is a JSON integer that fits an int64.
	Integer = Rule{"integer"}
	// Quantity is a JSON integer from 1 to 2^53-1.
	Quantity = Rule{"quantity"}
	// Boolean is true or false.
	Boolean = Rule{"boolean"}
)

// Name returns the rule's name in errors.
func (r Rule) Name() string { return cmp.Or(r.name, "none") }

func (r Rule) bare() bool { return r == Integer || r == Quantity || r == Boolean }

// Valid reports whether the value has the rule's shape.
func (r Rule) Valid(value string) bool { return r.valid([]byte(value)) }

func (r Rule) valid(value []byte) bool {
	switch r.name {
	case "id":
		return spelled(value, maxText, letter|digit, letter|digit|mark|colon)
	case "uid":
		return len(value) > 0 && value[0] != '.' && spelled(value, maxText, letter|digit|mark,
			letter|digit|mark|colon|bar)
	case "code":
		return spelled(value, 64, letter, letter|digit|mark)
	case "currency":
		return len(value) == 3 && len(bytes.Trim(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == 0
	case "timestamp":
		return isTime(value)
	case "amount":
		return isAmount(value) && !isCardOf(15, 19, value)
	case "integer":
		if len(value) > 0 && value[0] == '-' {
			return isUpTo("9223372036854775808", value[1:])
		}
		return isUpTo("9223372036854775807", value) && !isCardOf(15, 19, value)
	case "quantity":
		return isUpTo("9007199254740991", value) && value[0] != '0' && !isCardOf(15, 19, value)
	case "boolean":
		return string(value) == "true" || string(value) == "false"
	default:
		return false
	}
}

const (
	letter = 1 << iota
	digit
	mark // . _ -
	colon
	bar
)

var class = func() (table [256]byte) {
	for c := 'a'; c <= 'z'; c++ {
		table[c], table[c-'a'+'A'] = letter, letter
	}
	for c := '0'; c <= '9'; c++ {
		table[c] = digit
	}
	for _, c := range "._-" {
		table[c] = mark
	}
	table[':'], table['|'] = colon, bar
	return table
}()

// spelled: 1 to limit bytes, the first from one set of characters and the rest from another.
func spelled(value []byte, limit int, first, rest byte) bool {
	if len(value) == 0 || len(value) > limit || class[value[0]]&first == 0 {
		return false
	}
	for _, c := range value[1:] {
		if class[c]&rest == 0 {
			return false
		}
	}
	return true
}

// isTime is stricter than time.Parse, which accepts a comma, an hour of one digit and an offset of 24 hours,
// and so several spellings of one time.
func isTime(value []byte) bool {
	const layout = "2006-01-02T15:04:05"
	if len(value) <= len(layout) || value[10] != 'T' {
		return false
	}
	zone := value[len(layout):]
	if zone[0] == '.' {
		zone = bytes.TrimLeft(zone[1:], "0123456789")
	}
	if fraction := len(value) - len(layout) - len(zone); fraction == 1 || fraction > 10 {
		return false
	}
	var moment [len(layout) + 1]byte // in UTC, which is the quickest to parse
	copy(moment[:], value)
	moment[len(layout)] = 'Z'
	return (string(zone) == "Z" || isOffset(zone)) && new(time.Time).UnmarshalText(moment[:]) == nil
}

// InUTC adds UTC's offset to a time without one, and returns any other text unchanged.
func InUTC(text string) string { return string(inUTC([]byte(text))) }

func inUTC(value []byte) []byte {
	if completed := append(bytes.Clone(value), 'Z'); isTime(completed) {
		return completed
	}
	return value
}

// isOffset: +00:00 to +23:59, or the same with a minus.
func isOffset(zone []byte) bool {
	return len(zone) == 6 && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':' &&
		spelled(zone[1:3], 2, digit, digit) && spelled(zone[4:], 2, digit, digit) &&
		pair(zone[1:]) < 24 && pair(zone[4:]) < 60
}

func pair(digits []byte) int { return 10*int(digits[0]-'0') + int(digits[1]-'0') }

func isAmount(value []byte) bool {
	const most = 24
	if len(value) > 0 && value[0] == '-' {
		value = value[1:]
	}
	rest := bytes.TrimLeft(value, "0123456789")
	fits := len(rest) == 0 || (rest[0] == '.' && spelled(rest[1:], most, digit, digit))
	return len(rest) < len(value) && len(value) <= most && fits
}

// isUpTo: digits that are at most the limit. Digits of equal length compare like numbers.
func isUpTo(limit string, digits []byte) bool {
	return spelled(digits, len(limit), digit, digit) && (len(digits) < len(limit) || string(digits) <= limit)
}
