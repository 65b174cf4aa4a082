package pii

import (
	"bytes"
	"net/netip"
	"strconv"
)

// Detect looks for personal data in a value of a rule's shape and names the first
// kind it finds: email, phone, ip, card or iban.
func Detect(rule Rule, value string) (found string, ok bool) {
	found = detect(rule, []byte(value))
	return found, found != ""
}

func detect(r Rule, value []byte) string {
	if !r.open() {
		return ""
	}
	digits, colons, dots, at := 0, 0, 0, false
	for _, c := range value {
		switch {
		case class[c] == digit:
			digits++
		case c == ':':
			colons++
		case c == '.':
			dots++
		case c == '@':
			at = true
		}
	}
	switch {
	case at && hasEmail(value):
		return "email"
	case (dots >= 3 || colons >= 2) && hasIP(value):
		return "ip"
	case digits < 8: // most ids end here
		return ""
	case hasIBAN(value):
		return "iban"
	case r.shape == id && digits == len(value):
		return ""
	}
	// The groups of a UUID look like anything: only what stands around one counts.
	for {
		i := findUUID(value)
		if i < 0 {
			return detectNumber(value)
		}
		if found := detectNumber(value[:i]); found != "" {
			return found
		}
		value = value[i+uuidLength:]
	}
}

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

func isAlphanumeric(c byte) bool { return class[c]&(letter|digit) != 0 }

// hasIP: an address that stands alone, or behind a label and a colon.
func hasIP(value []byte) bool {
	for start := 0; start < len(value); start++ {
		if !isAddressByte(value[start]) {
			continue
		}
		end := start
		for end < len(value) && isAddressByte(value[end]) {
			end++
		}
		if end == len(value) || !isAlphanumeric(value[end]) {
			run := bytes.TrimRight(value[start:end], ".")
			if (start == 0 || !isAlphanumeric(value[start-1])) && isAddress(run) {
				return true
			}
			for cut := bytes.IndexByte(run, ':'); cut >= 0; cut = bytes.IndexByte(run, ':') {
				run = run[cut+1:]
				// Short forms such as ::b are what a label with two colons looks like too.
				if (bytes.Count(run, []byte{':'}) >= 3 || bytes.Count(run, []byte{'.'}) == 3) && isAddress(run) {
					return true
				}
			}
		}
		start = end
	}
	return false
}

func isAddress(run []byte) bool {
	if bytes.Count(run, []byte{'.'}) != 3 && bytes.Count(run, []byte{':'}) < 2 {
		return false
	}
	if port := bytes.LastIndexByte(run, ':'); port > 0 && bytes.IndexByte(run, ':') == port {
		run = run[:port]
	}
	_, err := netip.ParseAddr(string(run))
	return err == nil
}

func isHex(c byte) bool {
	return class[c] == digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')
}

func isAddressByte(c byte) bool { return isHex(c) || c == '.' || c == ':' }

// ibanLengths: the countries' IBANs by length (SWIFT's registry of IBAN formats).
var ibanLengths = func() map[string]int {
	lengths := map[string]int{}
	const table = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18FR27" +
		"GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19" +
		"MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20YE30"
	for i := 0; i < len(table); i += 4 {
		n, _ := strconv.Atoi(table[i+2 : i+4]) // the table is a constant
		lengths[table[i:i+2]] = n
	}
	return lengths
}()

// hasIBAN: a country, two check digits, its length, and the right remainder of 97.
// Spaces may part it. Only capitals count, as IBANs are written: hex and random ids
// are of small or mixed letters, and must not meet one by chance.
func hasIBAN(value []byte) bool {
	var compact [34]byte
	for start := 0; start+15 <= len(value); start++ {
		if (start > 0 && isAlphanumeric(value[start-1])) || !isUpper(value[start:start+2]) {
			continue
		}
		length := ibanLengths[string(value[start:start+2])]
		n, end := 0, start
		for ; end < len(value) && n < length; end++ {
			c := value[end]
			if c == ' ' {
				continue
			}
			if class[c] != digit && (c < 'A' || c > 'Z') {
				break
			}
			compact[n] = c
			n++
		}
		if length > 0 && n == length && (end == len(value) || !isAlphanumeric(value[end])) &&
			spelled(compact[2:4], 2, digit, digit) && mod97(compact[:n]) == 1 {
			return true
		}
	}
	return false
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

const uuidLength = 36

// findUUID returns where 8-4-4-4-12 hex digits stand, or -1.
func findUUID(value []byte) int {
	for start := 0; start+uuidLength <= len(value); start++ {
		if value[start+8] == '-' && isUUID(value[start:start+uuidLength]) {
			return start
		}
	}
	return -1
}

func isUUID(value []byte) bool {
	for i, c := range value {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || (!dash && !isHex(c)) {
			return false
		}
	}
	return true
}

// number is what may be a card's or a phone's: groups of digits, each standing alone
// between what is neither letter nor digit, and the marks people put between them.
type number struct {
	digits [40]byte
	// ends[i] is where group i ends in digits.
	ends   [12]int
	groups int
	// plus stands before it.
	plus bool
	// glued: it is the tail of a longer name, such as ORD-2025-001-002.
	glued bool
}

// detectNumber looks for a card's or a phone's number.
func detectNumber(value []byte) string {
	for i := 0; i < len(value); {
		if !isAlphanumeric(value[i]) {
			i++
			continue
		}
		var n number
		start := i
		i = n.read(value, i)
		if n.groups == 0 {
			continue
		}
		before := start
		for before > 0 && value[before-1] == '(' {
			before--
		}
		n.plus = before > 0 && value[before-1] == '+'
		n.glued = start > 1 && class[value[start-1]] == mark
		switch {
		case n.hasCard():
			return "card"
		case n.isPhone():
			return "phone"
		}
	}
	return ""
}

// read takes the groups that begin at i and returns where to go on.
func (n *number) read(value []byte, i int) int {
	length := 0
	for n.groups < len(n.ends) {
		end, letters := i, false
		for end < len(value) && isAlphanumeric(value[end]) {
			letters = letters || class[value[end]] == letter
			end++
		}
		if letters || length+end-i > len(n.digits) {
			return end
		}
		length += copy(n.digits[length:], value[i:end])
		n.ends[n.groups] = length
		n.groups++
		i = end
		for i < len(value) && i-end < 2 && bytes.IndexByte([]byte(" -.()/"), value[i]) >= 0 {
			i++
		}
		if i == end || i == len(value) || class[value[i]] != digit {
			return i
		}
	}
	return i
}

func (n *number) group(i int) int {
	if i == 0 {
		return n.ends[0]
	}
	return n.ends[i] - n.ends[i-1]
}

// isCardLength knows how long the numbers of a network are by how they begin (ISO/IEC
// 7812 and the networks' published ranges). Ids of 17 and 18 digits are no cards.
func isCardLength(digits []byte) bool {
	if len(digits) < 13 {
		return false
	}
	two := pair(digits)
	switch len(digits) {
	case 13:
		return digits[0] == '4'
	case 14:
		return two == 30 || two == 36 || two == 38 || two == 39
	case 15:
		return two == 34 || two == 37
	case 16:
		return digits[0] == '4' || digits[0] == '6' || two == 35 || (two >= 22 && two <= 27) || (two >= 50 && two <= 58)
	case 19:
		return digits[0] == '4' || digits[0] == '6'
	}
	return false
}

// hasCard: a card network's number that passes Luhn, in one group that is not the
// tail of a name, or in the groups that are embossed on cards. Any grouping at all would take one dated id in ten for a card.
func (n *number) hasCard() bool {
	for i := range n.groups {
		start := n.ends[i] - n.group(i)
		if digits := n.digits[start:n.ends[i]]; !n.glued && isCardLength(digits) && luhn(digits) {
			return true
		}
		for _, layout := range [...][]int{{4, 4, 4, 4}, {4, 4, 4, 4, 1}, {4, 4, 4, 4, 2}, {4, 4, 4, 4, 3}, {4, 4, 4, 1}, {4, 6, 5}, {4, 6, 4}, {8, 8}} {
			if last := i + len(layout) - 1; last < n.groups && n.laidOut(i, layout) && luhn(n.digits[start:n.ends[last]]) {
				return true
			}
		}
	}
	return false
}

func (n *number) laidOut(from int, layout []int) bool {
	for i, size := range layout {
		if n.group(from+i) != size {
			return false
		}
	}
	return true
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

// isPhone: 8 to 15 digits behind a plus or 00; or 9 to 11 digits in three or more
// groups, as people write national numbers, that are not the tail of a name and do
// not begin with a year.
func (n *number) isPhone() bool {
	digits := n.digits[:n.ends[n.groups-1]]
	if n.plus && len(digits) >= 8 && len(digits) <= 15 {
		return true
	}
	if n.glued {
		return false
	}
	if bytes.HasPrefix(digits, []byte("00")) {
		// No country's code begins with 0: more zeros are a serial number's. Two that stand
		// alone before one group are the seconds of a time and its fraction.
		return len(digits) >= 10 && len(digits) <= 17 && digits[2] != '0' && (n.group(0) > 2 || n.groups > 2)
	}
	if n.groups < 3 || len(digits) < 9 || len(digits) > 11 {
		return false
	}
	for i := range n.groups {
		if size := n.group(i); size < 2 && i > 0 {
			return false
		}
	}
	year := n.group(0) == 4 && (bytes.HasPrefix(digits, []byte("19")) || bytes.HasPrefix(digits, []byte("20")))
	return !year
}
