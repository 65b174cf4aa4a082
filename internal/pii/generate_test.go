package pii_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

type generator struct{ *rand.Rand }

const seed = 20261121

func newGenerator(stream uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, stream))} }

type form func(g *generator) string

// like draws a match of one of the regular expressions; of (?i), letters in any case.
func like(expressions ...string) form {
	var trees []*syntax.Regexp
	for _, expression := range expressions {
		tree, err := syntax.Parse(expression, syntax.Perl)
		if err != nil {
			panic(err) // they are constants
		}
		trees = append(trees, tree)
	}
	return func(g *generator) string {
		var text []rune
		g.draw(pick(g, trees...), &text)
		return string(text)
	}
}

func (g *generator) draw(tree *syntax.Regexp, text *[]rune) {
	switch tree.Op {
	case syntax.OpLiteral:
		for _, r := range tree.Rune {
			if tree.Flags&syntax.FoldCase != 0 && g.IntN(2) == 0 {
				r = []rune(strings.ToLower(string(r)))[0]
			}
			*text = append(*text, r)
		}
	case syntax.OpCharClass:
		size := 0
		for i := 0; i < len(tree.Rune); i += 2 {
			size += int(tree.Rune[i+1]-tree.Rune[i]) + 1
		}
		n := g.IntN(size)
		for i := 0; ; i += 2 {
			if of := int(tree.Rune[i+1]-tree.Rune[i]) + 1; n >= of {
				n -= of
				continue
			}
			*text = append(*text, tree.Rune[i]+rune(n))
			return
		}
	case syntax.OpAlternate:
		g.draw(pick(g, tree.Sub...), text)
	case syntax.OpQuest, syntax.OpRepeat:
		for range g.between(tree.Min, max(tree.Max, 1)) {
			g.draw(tree.Sub[0], text)
		}
	default: // a group, or several
		for _, sub := range tree.Sub {
			g.draw(sub, text)
		}
	}
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) between(least, most int) int { return least + g.IntN(most-least+1) }

type place struct {
	name string
	put  func(g *generator, personal string) string
}

var words, letters = like(`card|iban|mail|ip|user|CUSTOMER|acct|paid|invoice|samlp\|acme|x`),
	like(`[A-Za-z]{1,8}`)

// prefixed adds letters and marks in front, as identity providers do.
func prefixed(g *generator, personal string) string {
	before := letters(g) + pick(g, "", "-", "_", ".", ":", "|", "_-")
	if g.IntN(2) == 0 {
		before = words(g) + pick(g, "", "-", "_", ".", ":", "|", "--", "::")
	}
	return pick(g, before, before, before, before, before, before, before, "auth0|") + personal
}

var places = []place{
	{"alone", func(_ *generator, personal string) string { return personal }},
	{"behind a prefix", prefixed},
	{"in a sentence", func(g *generator, personal string) string {
		return fmt.Sprintf(pick(g, "%s", "Please write to %s before noon.",
			"my new one is %s, the old one has expired",
			"(%s)", "order 1001 of %s", "from %s; see above", "\"%s\"",
			"Dear Ilse,\n%s\nRegards"), personal)
	}},
}

func (g *generator) cased(text string) string {
	return pick(g, strings.ToLower(text), strings.ToUpper(text), like(`(?i)`+regexp.QuoteMeta(text))(g), text)
}

// grouped splits the text by sizes, the last of which is repeated to the end.
func grouped(text, gap string, sizes ...int) string {
	var groups []string
	for i := 0; text != ""; i++ {
		size := min(len(text), sizes[min(i, len(sizes)-1)])
		groups = append(groups, text[:size])
		text = text[size:]
	}
	return strings.Join(groups, gap)
}

type spelling struct {
	kind, name string
	draw       form
}

const octet = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`

var (
	local  = like(`[a-z]{1,9}(\.[a-z]{6}|_[0-9]{2}|\+[a-z]{4}|-[a-z]{3}|o'[a-z]{3})?`)
	domain = like(`[a-z]{1,8}(\.mail|-[a-z]{3}|[0-9]{2})?\.(com|org|co\.uk|pl|museum|xn--p1ai)`)
)

// spellings are those of personal data: of phones as testdata/ids.yaml has them.
func (all drawable) spellings() []spelling {
	card := all.card()
	list := []spelling{
		{"email", "", func(g *generator) string { return g.cased(local(g)) + "@" + g.cased(domain(g)) }},
		{"ip", "IPv4", like(`(22[0-3]|2[01][0-9]|1[0-9]{2}|[1-9][0-9]?)(\.` + octet + `){3}(/24|:8080)?`)},
		{"ip", "IPv6", (*generator).ipv6},
		{"card", "without gaps", func(g *generator) string { number, _ := card(g); return number }},
		{"card", "in groups", func(g *generator) string {
			number, sizes := card(g)
			return grouped(number, pick(g, " ", "-", "."), sizes...)
		}},
		{"iban", "without gaps", func(g *generator) string { return g.cased(g.iban()) }},
		{"iban", "in groups", func(g *generator) string {
			return grouped(g.cased(g.iban()), pick(g, " ", "-", "."), 4)
		}},
	}
	for _, of := range all.Phones {
		draw := like(of.Draw...)
		list = append(list, spelling{"phone", of.Name, func(g *generator) string {
			number := draw(g)
			if of.Gaps != nil {
				number = strings.ReplaceAll(number, "~", pick(g, of.Gaps...))
			}
			return number
		}})
	}
	return list
}

// ipv6 is an address of a person: global, local to a site or a link.
func (g *generator) ipv6() string {
	var bytes [16]byte
	for i := range bytes {
		bytes[i] = byte(g.IntN(256))
	}
	switch g.IntN(6) {
	case 0:
		bytes[0] = 0xfd
	case 1:
		bytes[0], bytes[1] = 0xfe, 0x80
		clear(bytes[2:8])
	default:
		bytes[0] = byte(g.between(0x20, 0x3f))
	}
	if g.IntN(2) == 0 {
		clear(bytes[g.between(2, 8):g.between(9, 15)])
	}
	address := netip.AddrFrom16(bytes)
	return g.cased(pick(g, address.StringExpanded(), address.String(), address.String(), address.String()))
}

// card returns a number of one of the networks, with its check digit, and the sizes of its groups.
func (all drawable) card() func(g *generator) (number string, sizes []int) {
	type network struct {
		body  form
		sizes [][]int
	}
	networks := filetest.Map(all.Cards, func(of ids) network { return network{like(of.Draw...), of.Sizes} })
	return func(g *generator) (string, []int) {
		of := pick(g, networks...)
		body, sum := of.body(g), 0
		for i, c := range body {
			d := int(c - '0')
			if (len(body)-i)%2 == 1 {
				d = d/5 + d*2%10
			}
			sum += d
		}
		return body + strconv.Itoa((10-sum%10)%10), pick(g, of.sizes...)
	}
}

var (
	counted    = regexp.MustCompile(`([0-9]+)([nac])`)
	characters = map[string]string{
		"n": "0123456789", "a": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "c": strings.Repeat("0123456789", 24) +
			"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	}
)

// iban is one of a country, with the check digits of ISO 13616. Banks mostly use digits for letters.
func (g *generator) iban() string {
	country := pick(g, "NO11n", "PL24n", "DE18n", "FR10n11c2n", "GB4a14n", "NL4a10n", "ES20n", "IT1a10n12c",
		"BE12n", "CH5n12c", "AT16n", "SE20n", "MT4a5n18c",
		"SA2n18c", "TR6n16c", "UA6n19c", "GR7n16c", "PT21n", "RO4a16c", "LV4a13c", "KZ3n13c", "AE19n", "BR23n1a1c",
		"GE2a16n", "MU4a19n3a", "LC4a24c", "GT24c", "MD20c")
	account, remainder := "", 0
	for _, part := range counted.FindAllStringSubmatch(country[2:], -1) {
		n, _ := strconv.Atoi(part[1]) // the countries above are constants
		for range n {
			account += string(pick(g, []byte(characters[part[2]])...))
		}
	}
	for _, c := range account + country[:2] + "00" {
		if c >= 'A' {
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		} else {
			remainder = (remainder*10 + int(c-'0')) % 97
		}
	}
	return fmt.Sprintf("%s%02d%s", country[:2], 98-remainder, account)
}

// ids are of one kind, drawn by one of the expressions. Some are valid card numbers.
type ids struct {
	Name   string
	Draw   []string
	Chance bool
	Gaps   []string // of phones
	Sizes  [][]int  // of cards
}

// drawable is testdata/ids.yaml, which says what each member is.
type drawable struct {
	Parts                map[string]string
	Kinds, Phones, Cards []ids
}

func readIDs(t require.TestingT) drawable {
	all := filetest.YAML[drawable](t, "testdata", "ids.yaml")
	for _, of := range slices.Concat(all.Kinds, all.Phones, all.Cards) {
		for i := range of.Draw {
			of.Draw[i] = os.Expand(of.Draw[i], func(part string) string { return all.Parts[part] })
		}
	}
	return all
}
