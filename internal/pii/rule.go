// Package pii owns what personal data survives the door: none. A projection lets
// through the fields that a contract names and drops every other; a rule bounds each
// of them to a shape in which no sentence fits; detectors look for what fits a shape
// all the same. It refuses to describe free text, and to repeat a value in an error.
package pii

import (
	"strconv"
	"time"
)

// Rule bounds one allowed scalar. Compare rules with ==.
type Rule struct{ *rule }

type rule struct {
	name string
	// number: the value is a JSON number, not a string.
	number bool
	valid  func(value []byte) bool
	// text is valid for a string, so that neither form is copied into the other.
	text func(value string) bool
	// decimal: digits alone are an id, which passes Luhn by chance.
	decimal bool
	// plain: the shape leaves no room for anything personal; no detector runs.
	plain bool
}

// The rules.
var (
	// Flake is a decimal id of 1 to 32 digits, as PayNow's are.
	Flake = Rule{&rule{name: "flake", valid: isFlake[[]byte], text: isFlake[string], plain: true}}
	// ID is an opaque identifier: a letter or digit, then up to 127 of those and
	// . _ : -.
	ID = Rule{&rule{name: "id", valid: isID[[]byte], text: isID[string], decimal: true}}
	// UID is an ID that is nobody's serial number: digits are looked at like any text.
	UID = Rule{&rule{name: "uid", valid: isID[[]byte], text: isID[string]}}
	// Code is a name of ours or of a protocol: a letter, then up to 63 letters,
	// digits and . _ -.
	Code = Rule{&rule{name: "code", valid: isCode[[]byte], text: isCode[string]}}
	// Currency is three capitals.
	Currency = Rule{&rule{name: "currency", valid: isCurrency[[]byte], text: isCurrency[string], plain: true}}
	// Time is RFC 3339, with at most nanoseconds.
	Time = Rule{&rule{name: "timestamp", valid: isTime[[]byte], text: isTime[string], plain: true}}
	// Amount is a decimal number in a string.
	Amount = Rule{&rule{name: "amount", valid: isAmount[[]byte], text: isAmount[string], plain: true}}
	// Integer is a JSON integer that fits an int64.
	Integer = Rule{&rule{name: "integer", number: true, valid: isInteger[[]byte], text: isInteger[string], plain: true}}
	// Quantity is a JSON integer from 1 to 2^53-1.
	Quantity = Rule{&rule{name: "quantity", number: true, valid: isQuantity[[]byte], text: isQuantity[string], plain: true}}
)

// Name is what errors call the rule.
func (r Rule) Name() string { return r.name }

// Valid reports whether the value has the rule's shape.
func (r Rule) Valid(value string) bool { return r.rule.text(value) }

// text is a value in either form.
type text interface{ ~string | ~[]byte }

const (
	letter = 1 << iota
	digit
	mark // . _ -
	colon
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
	table[':'] = colon
	return table
}()

// spelled reports whether the value begins with a character of the first set, goes
// on with ones of the rest, and has 1 to limit bytes.
func spelled[T text](value T, limit int, first, rest byte) bool {
	if len(value) == 0 || len(value) > limit || class[value[0]]&first == 0 {
		return false
	}
	for i := 1; i < len(value); i++ {
		if class[value[i]]&rest == 0 {
			return false
		}
	}
	return true
}

func isFlake[T text](value T) bool    { return spelled(value, 32, digit, digit) }
func isID[T text](value T) bool       { return spelled(value, 128, letter|digit, letter|digit|mark|colon) }
func isCode[T text](value T) bool     { return spelled(value, 64, letter, letter|digit|mark) }
func isCurrency[T text](value T) bool { return len(value) == 3 && isUpper(value) }

func isUpper[T text](value T) bool {
	for i := range len(value) {
		if value[i] < 'A' || value[i] > 'Z' {
			return false
		}
	}
	return true
}

func isTime[T text](value T) bool {
	if len(value) < len("2006-01-02T15:04:05Z") || len(value) > len("2006-01-02T15:04:05.999999999+00:00") {
		return false
	}
	_, err := time.Parse(time.RFC3339, string(value))
	return err == nil
}

func isAmount[T text](value T) bool {
	if len(value) > 0 && value[0] == '-' {
		value = value[1:]
	}
	if len(value) == 0 || len(value) > 24 {
		return false
	}
	points := 0
	for i := range len(value) {
		c := value[i]
		switch {
		case c == '.' && i > 0 && i < len(value)-1:
			points++
		case class[c] != digit:
			return false
		}
	}
	return points <= 1
}

func isInteger[T text](value T) bool {
	digits := value
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if !spelled(digits, 19, digit, digit) {
		return false
	}
	if len(digits) < 19 {
		return true
	}
	_, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil
}

func isQuantity[T text](value T) bool {
	if !spelled(value, 16, digit, digit) || value[0] == '0' {
		return false
	}
	if len(value) < 16 {
		return true
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && n < 1<<53
}
