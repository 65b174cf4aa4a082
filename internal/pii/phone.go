package pii

import (
	"bytes"
	"slices"
)

// number is what may be a phone's: groups of digits with one to three gaps between them.
type number struct {
	digits [17]byte
	// n counts them, also those that found no place.
	n      int
	sizes  [6]int
	groups int
	// from and to are where it stands.
	from, to int
	// dotted: nothing but single dots parts the groups.
	dotted bool
}

// readNumber reads the groups of digits from i on, which is where a word's digits begin.
func readNumber(value []byte, i int, text bool) (n number) {
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
		extended := text && i < len(value) && value[i]|0x20 == 'x' // 555-123-4567x12
		if i < len(value) && class[value[i]] == letter && !extended {
			n.n = from
			return n
		}
		if n.groups < len(n.sizes) {
			n.sizes[n.groups] = n.n - from
		}
		n.groups++
		n.to = i
		for i < len(value) && i-n.to < 3 && value[i] != ':' && value[i] != '|' && isGap(value[i]) {
			i++
		}
		if i == n.to || i == len(value) || class[value[i]] != digit {
			return n
		}
		n.dotted = n.dotted && i == n.to+1 && value[n.to] == '.'
	}
}

// Words before a phone's number; the last four in text alone, where they are no prefixes of ids.
var phoneWords = [...]string{"tel", "phone", "telephone", "mobile", "msisdn", "whatsapp", "gsm", "fax", "cell", "mob", "call", "sms"}

// named reports whether the word before the number, or glued to it, says what it is.
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
		slices.ContainsFunc(words, func(word string) bool { return bytes.EqualFold(value[start:end], []byte(word)) })
}

// isDated: it begins with a year or a day, as ids and times do.
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

// isPhone reports whether the number is a phone's; word is where what it stands in begins. Order ids are
// digits and dashes, so in an id only what is called a phone's is one, or dotted groups, or 00 in front; text
// may have more.
func (n *number) isPhone(value []byte, word int, text bool) bool {
	if n.groups == 0 || n.groups > len(n.sizes) || n.n < 7 || n.n > len(n.digits) {
		return false
	}
	before := n.from
	for before > 0 && value[before-1] == '(' {
		before--
	}
	digits := n.digits[:n.n]
	zeros := n.n >= 10 && digits[0] == '0' && digits[1] == '0' && digits[2] != '0' // no country's code begins with 0
	dated := n.isDated()
	switch {
	case before > 0 && value[before-1] == '+':
		return n.n <= 15
	case !dated && (text || n.n >= 9) && n.named(value, text):
		return true
	case word < n.from || (word > 1 && class[value[word-1]] == mark):
		return false // the tail of a name
	case !text && n.groups == 1:
		return zeros && n.n >= 12 && n.n <= 15
	case !text:
		return n.dotted && !dated && n.isNational()
	case zeros:
		// Two that stand alone before one group are the seconds of a time and its fraction.
		return n.sizes[0] > 2 || n.groups > 2
	case n.sizes[0] == 3 && digits[0] == '0' && digits[1] == '1' && digits[2] == '1':
		return n.n >= 10
	case dated || n.n > 12:
		return false
	case digits[0] == '0' && digits[1] != '0', before < n.from && bytes.HasPrefix(value[n.from+n.sizes[0]:], []byte{')'}):
		return n.n >= 9
	case n.groups == 2:
		return n.n >= 9 && n.n <= 11 && n.sizes[0] >= 3 && n.sizes[1] >= 3 && n.sizes[0] <= 5
	}
	return n.isNational()
}

// isNational: 9 to 11 digits in three groups or more.
func (n *number) isNational() bool {
	return n.groups >= 3 && n.n >= 9 && n.n <= 11 && !slices.ContainsFunc(n.sizes[1:n.groups], func(size int) bool { return size < 2 })
}
