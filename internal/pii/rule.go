// Package pii owns what personal data survives the door: none. A projection lets
// through the fields that a contract names and drops every other; a rule bounds each
// of them to a shape in which no sentence fits; detectors look for what fits a shape
// all the same. It refuses to describe free text, and to repeat a value in an error.
package pii

// Rule bounds one allowed scalar. Rules are compared with ==; the zero Rule allows
// nothing.
type Rule struct{ shape shape }

type shape uint8

const (
	_ shape = iota
	flake
	id
	uid
	code
	currency
	timestamp
	amount
	integer
	quantity
)

// The rules.
var (
	// Flake is a decimal id of 1 to 32 digits, as PayNow's are. One of 13 to 16 that is
	// a card's number is no flake: those have 17 to 20.
	Flake = Rule{flake}
	// ID is an opaque identifier: a letter or digit, then up to 127 of those and
	// . _ : -. Digits alone are a serial number, unless they are 13 to 16 and a card's.
	ID = Rule{id}
	// UID is what identity providers call a person: a letter, a digit, _ or -, then up
	// to 127 of those and . : |, such as auth0|5f7c8ec7c33c6c004bbafe82. It is nobody's
	// serial number: digits alone are looked at like any text.
	UID = Rule{uid}
	// Code is a name of ours or of a protocol: a letter, then up to 63 letters,
	// digits and . _ -.
	Code = Rule{code}
	// Currency is three capitals.
	Currency = Rule{currency}
	// Time is RFC 3339, with at most nanoseconds.
	Time = Rule{timestamp}
	// Amount is a decimal number in a string, of at most 24 characters without its sign.
	// No amount, and no other number, is 15 digits or more that are a card's.
	Amount = Rule{amount}
	// Integer is a JSON integer that fits an int64.
	Integer = Rule{integer}
	// Quantity is a JSON integer from 1 to 2^53-1.
	Quantity = Rule{quantity}
)

// Name is what errors call the rule.
func (r Rule) Name() string {
	return [...]string{"none", "flake", "id", "uid", "code", "currency", "timestamp", "amount", "integer", "quantity"}[r.shape]
}

// number reports whether the value is a JSON number rather than a string.
func (r Rule) number() bool { return r.shape == integer || r.shape == quantity }

// Valid reports whether the value has the rule's shape.
func (r Rule) Valid(value string) bool { return r.valid([]byte(value)) }

func (r Rule) valid(value []byte) bool {
	switch r.shape {
	case flake:
		return spelled(value, 32, digit, digit)
	case id:
		return spelled(value, maxText, letter|digit, letter|digit|mark|colon)
	case uid:
		return len(value) > 0 && value[0] != '.' && spelled(value, maxText, letter|digit|mark, letter|digit|mark|colon|bar)
	case code:
		return spelled(value, 64, letter, letter|digit|mark)
	case currency:
		return len(value) == 3 && isUpper(value)
	case timestamp:
		return isTime(value)
	case amount:
		return isAmount(value) && !isCardOf(15, 19, value)
	case integer:
		return isInteger(value) && !isCardOf(15, 19, value)
	case quantity:
		return isQuantity(value) && !isCardOf(15, 19, value)
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

// spelled reports whether the value begins with a character of the first set, goes
// on with ones of the rest, and has 1 to limit bytes.
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

func isUpper(value []byte) bool {
	for _, c := range value {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}

// isTime is stricter than time.Parse, which takes a comma before the fraction and an
// hour of one digit, and so would let two spellings of one moment through.
func isTime(value []byte) bool {
	const layout = "0000-00-00T00:00:00"
	if len(value) <= len(layout) || len(value) > len("2006-01-02T15:04:05.999999999+00:00") {
		return false
	}
	for i := range len(layout) {
		if (layout[i] == '0' && class[value[i]] != digit) || (layout[i] != '0' && value[i] != layout[i]) {
			return false
		}
	}
	month, day := pair(value[5:]), pair(value[8:])
	if month < 1 || month > 12 || day < 1 || day > daysIn(month, 100*pair(value)+pair(value[2:])) ||
		pair(value[11:]) > 23 || pair(value[14:]) > 59 || pair(value[17:]) > 59 {
		return false
	}
	rest := value[len(layout):]
	if rest[0] == '.' {
		n := 1
		for n < len(rest) && class[rest[n]] == digit {
			n++
		}
		if n < 2 || n > 10 {
			return false
		}
		rest = rest[n:]
	}
	if len(rest) == 1 {
		return rest[0] == 'Z'
	}
	return len(rest) == 6 && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':' &&
		spelled(rest[1:3], 2, digit, digit) && spelled(rest[4:], 2, digit, digit) && pair(rest[1:]) < 24 && pair(rest[4:]) < 60
}

func pair(digits []byte) int { return 10*int(digits[0]-'0') + int(digits[1]-'0') }

func daysIn(month, year int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

func isAmount(value []byte) bool {
	if len(value) > 0 && value[0] == '-' {
		value = value[1:]
	}
	if len(value) == 0 || len(value) > 24 {
		return false
	}
	points := 0
	for i, c := range value {
		switch {
		case c == '.' && i > 0 && i < len(value)-1:
			points++
		case class[c] != digit:
			return false
		}
	}
	return points <= 1
}

func isInteger(value []byte) bool {
	digits, limit := value, "9223372036854775807"
	if len(digits) > 0 && digits[0] == '-' {
		digits, limit = digits[1:], "9223372036854775808"
	}
	// Digits of one length compare as numbers do.
	return spelled(digits, len(limit), digit, digit) && (len(digits) < len(limit) || string(digits) <= limit)
}

func isQuantity(value []byte) bool {
	if !spelled(value, 16, digit, digit) || value[0] == '0' {
		return false
	}
	return len(value) < 16 || string(value) <= "9007199254740991"
}
