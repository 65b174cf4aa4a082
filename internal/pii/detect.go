package pii

import (
	"bytes"
	"net/netip"
	"strconv"
)

// Detect looks for personal data in a value of a rule's shape and names the first
// kind it finds: email, phone, ip, card or iban.
func Detect(r Rule, value string) (found string, ok bool) {
	found = detect(r, []byte(value))
	return found, found != ""
}

func detect(r Rule, value []byte) string {
	if r.plain {
		return ""
	}
	digits, colons, dots, other := 0, 0, 0, false
	for _, c := range value {
		switch {
		case class[c] == digit:
			digits++
		case c == ':':
			colons++
		case c == '.':
			dots++
		case c == '@' || c == '+' || c == '(' || c == ' ' || c == '/':
			other = true
		}
	}
	// Most ids are settled here: what is looked for has digits or marks of its own.
	if !other && digits < 7 && colons < 2 && dots < 3 {
		return ""
	}
	switch {
	case bytes.IndexByte(value, '@') >= 0 && hasEmail(value):
		return "email"
	case (dots >= 3 || colons >= 2) && hasIP(value):
		return "ip"
	case digits >= 8 && hasIBAN(value):
		return "iban"
	case digits < 8 || (r.decimal && digits == len(value)) || isUUID(value):
		return ""
	case hasCard(value):
		return "card"
	case hasPhone(value):
		return "phone"
	}
	return ""
}

// hasEmail: something, an @, and a domain with a dot and a top level of letters.
func hasEmail(value []byte) bool {
	for i, c := range value {
		if c != '@' || i == 0 || value[i-1] == ' ' {
			continue
		}
		domain := value[i+1:]
		end := 0
		for end < len(domain) && (class[domain[end]]&(letter|digit|mark) != 0 || domain[end] >= 0x80) {
			end++
		}
		dot := bytes.LastIndexByte(domain[:end], '.')
		if dot > 0 && end-dot > 2 {
			return true
		}
	}
	return false
}

// hasIP: a run of what addresses are made of that is one.
func hasIP(value []byte) bool {
	for start := 0; start < len(value); {
		end := start
		dots, colons := 0, 0
		for end < len(value) && isAddressByte(value[end]) {
			switch value[end] {
			case '.':
				dots++
			case ':':
				colons++
			}
			end++
		}
		if end > start {
			bounded := (start == 0 || class[value[start-1]]&(letter|digit) == 0) && (end == len(value) || class[value[end]]&(letter|digit) == 0)
			if bounded && (dots == 3 || colons >= 2) {
				if _, err := netip.ParseAddr(string(bytes.Trim(value[start:end], "."))); err == nil {
					return true
				}
			}
			start = end
		} else {
			start++
		}
	}
	return false
}

func isAddressByte(c byte) bool {
	return class[c] == digit || c == '.' || c == ':' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')
}

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

// hasIBAN: a country, its length, and the right remainder of 97. Spaces may part it.
func hasIBAN(value []byte) bool {
	for start := range value {
		if start > 0 && class[value[start-1]]&(letter|digit) != 0 || start+15 > len(value) {
			continue
		}
		length := ibanLengths[string(value[start:start+2])]
		if length == 0 {
			continue
		}
		compact := make([]byte, 0, 34)
		end := start
		for end < len(value) && len(compact) < length {
			c := value[end]
			if c != ' ' && class[c] != digit && (c < 'A' || c > 'Z') {
				break
			}
			if c != ' ' {
				compact = append(compact, c)
			}
			end++
		}
		if len(compact) == length && (end == len(value) || class[value[end]]&(letter|digit) == 0) && mod97(compact) == 1 {
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

// isUUID: 8-4-4-4-12 hex digits, whose groups look like anything.
func isUUID(value []byte) bool {
	if len(value) != 36 {
		return false
	}
	for i, c := range value {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || (!dash && (!isAddressByte(c) || c == '.' || c == ':')) {
			return false
		}
	}
	return true
}

// hasCard: digits, parted by single spaces or dashes at most, that stand alone, have
// the beginning and the length of a card network, and pass Luhn.
func hasCard(value []byte) bool {
	return eachRun(value, " -", func(digits []byte, _ int, _ bool) bool {
		return isCardLength(digits) && luhn(digits)
	})
}

// isCardLength knows how long the numbers of a network are by how they begin (ISO/IEC
// 7812 and the networks' published ranges). Ids of 17 and 18 digits are no cards.
func isCardLength(digits []byte) bool {
	if len(digits) < 13 {
		return false
	}
	two := int(digits[0]-'0')*10 + int(digits[1]-'0')
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

// hasPhone: a plus or 00 and 8 to 15 digits, or 9 to 11 digits in at least three
// groups, as people write their numbers.
func hasPhone(value []byte) bool {
	return eachRun(value, " -.()/", func(digits []byte, separators int, plus bool) bool {
		n := len(digits)
		international := plus || (n > 2 && digits[0] == '0' && digits[1] == '0' && separators > 0)
		return (international && n >= 8 && n <= 17) || (separators >= 2 && n >= 9 && n <= 11)
	})
}

// eachRun hands out the runs of digits, parted by single separators, that stand
// between characters which are neither letters nor digits, until one is found.
func eachRun(value []byte, separators string, found func(digits []byte, separators int, plus bool) bool) bool {
	var buffer [24]byte
	for i := 0; i < len(value); {
		if class[value[i]] != digit {
			i++
			continue
		}
		before := i
		for before > 0 && value[before-1] == '(' {
			before--
		}
		plus := before > 0 && value[before-1] == '+'
		// Digits behind letters or marks of an id, as in user-411486491630370001, are its own.
		bounded := i == 0 || class[value[i-1]] == 0
		digits, parted, gap := buffer[:0], 0, 0
		for ; i < len(value); i++ {
			c := value[i]
			if class[c] == digit {
				if gap > 0 {
					parted++
				}
				gap = 0
				if len(digits) < cap(digits) {
					digits = append(digits, c)
				}
				continue
			}
			if gap++; gap > 2 || bytes.IndexByte([]byte(separators), c) < 0 {
				break
			}
		}
		if gap == 1 && i < len(value) && class[value[i]] == letter {
			bounded = false
		}
		if bounded && len(digits) < cap(digits) && found(digits, parted, plus) {
			return true
		}
	}
	return false
}
