package pii_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	digits   = "0123456789"
	lower    = "abcdefghijklmnopqrstuvwxyz"
	capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	base62   = digits + capitals + lower
)

// of draws n characters.
func (g *generator) of(alphabet string, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = alphabet[g.IntN(len(alphabet))]
	}
	return string(text)
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// between is a number from least to most.
func (g *generator) between(least, most int) int { return least + g.IntN(most-least+1) }

func (g *generator) octet(least, most byte) byte {
	return byte(g.between(int(least), int(most)))
}

// prefix is letters, and marks, or none.
func (g *generator) prefix() string {
	if g.IntN(2) == 0 {
		return pick(g, "card", "iban", "mail", "ip", "user", "CUSTOMER", "acct", "paid", "invoice", "samlp|acme", "x") + pick(g, "", "-", "_", ".", ":", "|", "--", "::")
	}
	if g.IntN(8) == 0 {
		return "auth0|"
	}
	return g.of(lower+capitals, g.between(1, 8)) + pick(g, "", "-", "_", ".", ":", "|", "_-")
}

// sentence puts it into one.
func (g *generator) sentence(personal string) string {
	return fmt.Sprintf(pick(g, "%s", "Please write to %s before noon.", "my new one is %s, the old one is gone", "(%s)", "order 1001 of %s", "from %s; see above", "\"%s\"",
		"Dear Ilse,\n%s\nRegards"), personal)
}

// cased spells letters as they are, large, small or both.
func (g *generator) cased(text string) string {
	switch g.IntN(4) {
	case 0:
		return strings.ToLower(text)
	case 1:
		return strings.ToUpper(text)
	case 2:
		mixed := []byte(text)
		for i, c := range mixed {
			if g.IntN(2) == 0 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
				mixed[i] = c ^ 0x20
			}
		}
		return string(mixed)
	}
	return text
}

// grouped parts the text by sizes, the last of which goes on to the end.
func grouped(text, gap string, sizes ...int) string {
	var groups []string
	for i := 0; text != ""; i++ {
		size := min(len(text), sizes[min(i, len(sizes)-1)])
		groups = append(groups, text[:size])
		text = text[size:]
	}
	return strings.Join(groups, gap)
}

var spellings = []spelling{
	{"email", "", (*generator).email},
	{"ip", "IPv4", func(g *generator) string {
		address := netip.AddrFrom4([4]byte{g.octet(1, 223), g.octet(0, 255), g.octet(0, 255), g.octet(0, 255)}).String()
		return address + pick(g, "", "", "/24", ":8080")
	}},
	{"ip", "IPv6", (*generator).ipv6},
	{"card", "without gaps", func(g *generator) string { number, _ := g.card(); return number }},
	{"card", "in groups", func(g *generator) string {
		number, sizes := g.card()
		return grouped(number, pick(g, " ", "-", "."), sizes...)
	}},
	{"iban", "without gaps", func(g *generator) string { return g.cased(g.iban()) }},
	{"iban", "in groups", func(g *generator) string { return grouped(g.cased(g.iban()), pick(g, " ", "-", "."), 4) }},
	{"phone", "`+48601234567`", func(g *generator) string { return "+" + g.international("") }},
	{"phone", "`+48 601 234 567`, with dashes or dots", func(g *generator) string { return "+" + g.international(pick(g, " ", "-", ".")) }},
	{"phone", "`0048601234567`", func(g *generator) string { return "00" + g.international("") }},
	{"phone", "`0048 601 234 567`", func(g *generator) string { return "00" + g.international(" ") }},
	{"phone", "`tel:48601234567`, `phone-601-234-567`", func(g *generator) string {
		return g.cased(pick(g, "tel", "phone", "mobile", "whatsapp")) + pick(g, "", ":", "-", "_") + pick(g, g.international, g.national)(pick(g, "", "-", "."))
	}},
	{"phone", "`601 234 567`", func(g *generator) string { return g.national(" ") }},
	{"phone", "`601.234.567`", func(g *generator) string { return g.national(".") }},
	{"phone", "`601-234-567`", func(g *generator) string { return g.national("-") }},
	{"phone", "`(555) 123-4567`", func(g *generator) string {
		return fmt.Sprintf("(%s)%s%s-%s", g.area(), pick(g, " ", ""), g.area(), g.of(digits, 4))
	}},
	{"phone", "`01632 960001`", func(g *generator) string { return "0" + g.of(digits[1:], 1) + g.of(digits, 3) + " " + g.of(digits, 6) }},
	{"phone", "`601234567`", func(g *generator) string { return g.national("") }},
}

func (g *generator) email() string {
	local := g.of(lower, g.between(1, 9)) + pick(g, "", "."+g.of(lower, 6), "_"+g.of(digits, 2), "+"+g.of(lower, 4), "-"+g.of(lower, 3), "o'"+g.of(lower, 3))
	domain := g.of(lower, g.between(1, 8)) + pick(g, "", ".mail", "-"+g.of(lower, 3), g.of(digits, 2))
	return g.cased(local) + "@" + g.cased(domain+pick(g, ".com", ".org", ".co.uk", ".pl", ".museum", ".xn--p1ai"))
}

// ipv6 is an address that people have: global, local to a site or a link.
func (g *generator) ipv6() string {
	var bytes [16]byte
	for i := range bytes {
		bytes[i] = g.octet(0, 255)
	}
	switch g.IntN(6) {
	case 0:
		bytes[0] = 0xfd
	case 1:
		bytes[0], bytes[1] = 0xfe, 0x80
		clear(bytes[2:8])
	default:
		bytes[0] = g.octet(0x20, 0x3f)
	}
	if g.IntN(2) == 0 {
		clear(bytes[g.between(2, 8):g.between(9, 15)])
	}
	address := netip.AddrFrom16(bytes)
	if g.IntN(4) == 0 {
		return g.cased(address.StringExpanded())
	}
	return g.cased(address.String())
}

// card is a number of a network, and the groups it is written in.
func (g *generator) card() (number string, sizes []int) {
	fours := []int{4}
	begins, length := "", 16
	switch g.IntN(12) {
	case 0, 1, 2:
		begins = "4"
	case 3, 4:
		begins = strconv.Itoa(g.between(51, 55))
	case 5:
		begins = strconv.Itoa(g.between(2221, 2720))
	case 6:
		begins, length, fours = pick(g, "34", "37"), 15, pick(g, []int{4}, []int{4, 6, 5})
	case 7:
		begins, length, fours = pick(g, "36", "38", "300", "305"), 14, pick(g, []int{4}, []int{4, 6, 4})
	case 8:
		begins, length = pick(g, "6011", "644", "65"), pick(g, 16, 16, 19)
	case 9:
		begins = strconv.Itoa(g.between(3528, 3589))
	case 10:
		begins, length = "62", pick(g, 16, 19)
	default:
		begins, length = pick(g, "5018", "5020", "5038", "6304", "6759", "6761"), pick(g, 13, 16, 19)
	}
	body := begins + g.of(digits, length-1-len(begins))
	for check := range 10 { // whichever makes the sum right
		number = body + strconv.Itoa(check)
		sum := 0
		for i, c := range number {
			d := int(c - '0')
			if (length-i)%2 == 0 {
				d = d/5 + d*2%10
			}
			sum += d
		}
		if sum%10 == 0 {
			break
		}
	}
	return number, fours
}

// iban is one of a country; its check digits are reckoned as ISO 13616 says. Banks fill
// the places of digits or letters with digits, mostly.
func (g *generator) iban() string {
	country := pick(g, "NO11n", "PL24n", "DE18n", "FR10n11c2n", "GB4a14n", "NL4a10n", "ES20n", "IT1a10n12c", "BE12n", "CH5n12c", "AT16n", "SE20n", "MT4a5n18c",
		"SA2n18c", "TR6n16c", "UA6n19c", "GR7n16c", "PT21n", "RO4a16c", "LV4a13c", "KZ3n13c", "AE19n", "BR23n1a1c", "GE2a16n", "MU4a19n3a", "LC4a24c", "GT24c", "MD20c")
	var account strings.Builder
	for rest := country[2:]; rest != ""; {
		i := strings.IndexAny(rest, "nac")
		n, _ := strconv.Atoi(rest[:i]) // the countries above are constants
		account.WriteString(g.of(map[byte]string{'n': digits, 'a': capitals, 'c': strings.Repeat(digits, 24) + capitals}[rest[i]], n))
		rest = rest[i+1:]
	}
	remainder := 0
	for _, c := range account.String() + country[:2] + "00" {
		if c >= 'A' {
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		} else {
			remainder = (remainder*10 + int(c-'0')) % 97
		}
	}
	return fmt.Sprintf("%s%02d%s", country[:2], 98-remainder, &account)
}

// area begins no number of an emergency or an operator.
func (g *generator) area() string { return g.of("23456789", 1) + g.of(digits, 2) }

// international is a number with its country's code.
func (g *generator) international(gap string) string {
	switch g.IntN(4) {
	case 0:
		return grouped("1"+g.area()+g.area()+g.of(digits, 4), gap, 1, 3, 3, 4)
	case 1:
		return grouped("44"+"7"+g.of(digits, 9), gap, 2, 4, 6)
	case 2:
		return grouped("47"+g.of("2345679", 1)+g.of(digits, 7), gap, 2)
	}
	return grouped(pick(g, "48", "34", "61")+g.of("56789", 1)+g.of(digits, 8), gap, 2, 3)
}

// national is a number as people at home write it.
func (g *generator) national(gap string) string {
	switch g.IntN(3) {
	case 0:
		return grouped(g.area()+g.area()+g.of(digits, 4), gap, 3, 3, 4)
	case 1:
		return grouped("0"+g.of("1234679", 1)+g.of(digits, 8), gap, 2)
	}
	return grouped(g.of("5678", 1)+g.of(digits, 8), gap, 3)
}
