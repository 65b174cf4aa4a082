package pii_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// generator draws from a seed.
type generator struct{ *rand.Rand }

const seed = 20261121

func newGenerator(stream uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, stream))} }

// form is a way to write something.
type form func(g *generator) string

// like draws what one of the regular expressions matches; of what is (?i), letters in any case.
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

// between is a number from least to most.
func (g *generator) between(least, most int) int { return least + g.IntN(most-least+1) }

// A place is where something personal stands.
type place struct {
	name string
	put  func(g *generator, personal string) string
}

var words, letters = like(`card|iban|mail|ip|user|CUSTOMER|acct|paid|invoice|samlp\|acme|x`), like(`[A-Za-z]{1,8}`)

// prefixed puts letters and marks before it, as an identity provider's name may have.
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
		return fmt.Sprintf(pick(g, "%s", "Please write to %s before noon.", "my new one is %s, the old one is gone", "(%s)", "order 1001 of %s", "from %s; see above", "\"%s\"",
			"Dear Ilse,\n%s\nRegards"), personal)
	}},
}

// cased spells letters as they are, large, small or both.
func (g *generator) cased(text string) string {
	return pick(g, strings.ToLower(text), strings.ToUpper(text), like(`(?i)`+regexp.QuoteMeta(text))(g), text)
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

// A spelling is one way to write something personal.
type spelling struct {
	kind, name string
	draw       form
}

// Numbers of phones, with ~ for a gap: with the country's code, and as people at home write them.
const (
	abroad = `(1~[2-9][0-9]{2}~[2-9][0-9]{2}~[0-9]{4}|44~7[0-9]{3}~[0-9]{6}|47~[2345679][0-9](~[0-9]{2}){3}|(48|34|61)~[5-9][0-9]{2}(~[0-9]{3}){2})`
	atHome = `([2-9][0-9]{2}~[2-9][0-9]{2}~[0-9]{4}|0[1234679](~[0-9]{2}){4}|[5-8][0-9]{2}(~[0-9]{3}){2})`
)

// phone draws a number with one of the gaps.
func phone(number string, gaps ...string) form {
	draw := like(number)
	return func(g *generator) string { return strings.ReplaceAll(draw(g), "~", pick(g, gaps...)) }
}

const octet = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`

var (
	local  = like(`[a-z]{1,9}(\.[a-z]{6}|_[0-9]{2}|\+[a-z]{4}|-[a-z]{3}|o'[a-z]{3})?`)
	domain = like(`[a-z]{1,8}(\.mail|-[a-z]{3}|[0-9]{2})?\.(com|org|co\.uk|pl|museum|xn--p1ai)`)
)

var spellings = []spelling{
	{"email", "", func(g *generator) string { return g.cased(local(g)) + "@" + g.cased(domain(g)) }},
	{"ip", "IPv4", like(`(22[0-3]|2[01][0-9]|1[0-9]{2}|[1-9][0-9]?)(\.` + octet + `){3}(/24|:8080)?`)},
	{"ip", "IPv6", (*generator).ipv6},
	{"card", "without gaps", func(g *generator) string { number, _ := g.card(); return number }},
	{"card", "in groups", func(g *generator) string {
		number, sizes := g.card()
		return grouped(number, pick(g, " ", "-", "."), sizes...)
	}},
	{"iban", "without gaps", func(g *generator) string { return g.cased(g.iban()) }},
	{"iban", "in groups", func(g *generator) string { return grouped(g.cased(g.iban()), pick(g, " ", "-", "."), 4) }},
	{"phone", "`+48601234567`", phone(`\+`+abroad, "")},
	{"phone", "`+48 601 234 567`, with dashes or dots", phone(`\+`+abroad, " ", "-", ".")},
	{"phone", "`0048601234567`", phone(`00`+abroad, "")},
	{"phone", "`0048 601 234 567`", phone(`00`+abroad, " ")},
	{"phone", "`tel:48601234567`, `phone-601-234-567`", phone(`(?i)(tel|phone|mobile|whatsapp)[-:_]?(`+abroad+`|`+atHome+`)`, "", "-", ".")},
	{"phone", "`601 234 567`", phone(atHome, " ")},
	{"phone", "`601.234.567`", phone(atHome, ".")},
	{"phone", "`601-234-567`", phone(atHome, "-")},
	{"phone", "`(555) 123-4567`", like(`\([2-9][0-9]{2}\) ?[2-9][0-9]{2}-[0-9]{4}`)},
	{"phone", "`01632 960001`", like(`0[1-9][0-9]{3} [0-9]{6}`)},
	{"phone", "`601234567`", phone(atHome, "")},
}

// ipv6 is an address that people have: global, local to a site or a link.
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

// cards are networks: how their numbers begin and go on, without the last digit, and the groups they are written in.
var cards = []struct {
	body  form
	sizes [][]int
}{
	{like(`4[0-9]{14}`), [][]int{{4}}}, {like(`5[1-5][0-9]{13}`), [][]int{{4}}}, {like(`2(22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{11}`), [][]int{{4}}},
	{like(`3[47][0-9]{12}`), [][]int{{4}, {4, 6, 5}}}, {like(`3[68][0-9]{11}`, `30[05][0-9]{10}`), [][]int{{4}, {4, 6, 4}}},
	{like(`(6011|64[4-9][0-9]|65[0-9]{2})([0-9]{11}|[0-9]{14})`), [][]int{{4}}}, {like(`35(2[89]|[3-8][0-9])[0-9]{11}`), [][]int{{4}}},
	{like(`62([0-9]{13}|[0-9]{16})`), [][]int{{4}}}, {like(`(5018|5020|5038|6304|6759|6761)([0-9]{8}|[0-9]{11}|[0-9]{14})`), [][]int{{4}}},
}

// card is a number of a network, and the groups it is written in.
func (g *generator) card() (number string, sizes []int) {
	of := pick(g, cards...)
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

var (
	counted    = regexp.MustCompile(`([0-9]+)([nac])`)
	characters = map[string]string{"n": "0123456789", "a": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "c": strings.Repeat("0123456789", 24) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
)

// iban is one of a country; its check digits are reckoned as ISO 13616 says. Banks fill the places of digits or letters
// with digits, mostly.
func (g *generator) iban() string {
	country := pick(g, "NO11n", "PL24n", "DE18n", "FR10n11c2n", "GB4a14n", "NL4a10n", "ES20n", "IT1a10n12c", "BE12n", "CH5n12c", "AT16n", "SE20n", "MT4a5n18c",
		"SA2n18c", "TR6n16c", "UA6n19c", "GR7n16c", "PT21n", "RO4a16c", "LV4a13c", "KZ3n13c", "AE19n", "BR23n1a1c", "GE2a16n", "MU4a19n3a", "LC4a24c", "GT24c", "MD20c")
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

// ids are of one kind.
type ids struct {
	name string
	draw form
	// chance: some are a card's number by any rule that finds cards.
	chance bool
}

// Parts of ids: those that tell a time are of the years from 2018 to 2028.
const (
	uuid   = `([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|019[0-9a-f]{5}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})`
	flake  = `([4-9][0-9]{17}|1[0-4][0-9]{17})` // of Discord; those of Twitter are larger
	object = `(5[a-f]|6[0-9a-f])[0-9a-f]{22}`   // seconds, then anything, as MongoDB's
	year   = `20(1[89]|2[0-8])`
	month  = `(0[1-9]|1[0-2])`
	day    = `(0[1-9]|1[0-9]|2[0-8])`
	clock  = `([01][0-9]|2[0-3])`
	sixty  = `[0-5][0-9]`
	epoch  = `(1[567][0-9]{8})`
	word   = `(points|user|paid|invoice|abc|cafe|b)`
	pair   = `(00|fe|FE|[0-9a-f]{2}|[0-9A-F]{2})`
)

var allIDs = []ids{
	{"UUIDs", like(uuid, `(?i)`+uuid, `(order-|cus_|x:)`+uuid, uuid+`:`+word), false},
	{"UUIDs without dashes", like(`[0-9a-f]{12}[47][0-9a-f]{3}[89ab][0-9a-f]{15}`), false},
	{"ULIDs", like(`(ord_)?01[A-K][0-9A-HJKMNP-TV-Z]{23}`), false},
	{"snowflakes of Discord and Twitter", like(flake, `(9[5-9][0-9]{16}|1[0-9]{18})`), false},
	{"PayNow's flakes", like(`(3[5-9]|[45][0-9]|6[0-4])[0-9]{16}`), false},
	{"numbers of 17 and 18 digits, alone and behind a prefix", like(`(user-|u_)?7[0-9]{16}`, `(user-|order:)?4[0-9]{17}`), false},
	{"Stripe's ids", like(`(cus|prod)_[0-9A-Za-z]{14}`, `(pi_3|ch_3|evt_1|sub_1|price_1|in_1)[0-9A-Za-z]{23}`, `evt_[0-9A-Za-z]{24}`, `cs_live_[0-9A-Za-z]{58}`), false},
	{"Firebase's uids", like(`[0-9A-Za-z]{28}`), false},
	{"Auth0's users", like(`(auth0|sms)\|`+object, `google-oauth2\|1[0-9]{20}`, `github\|[0-9]{8}`, `(twitter|oauth2\|discord)\|`+flake,
		`facebook\|(10[0-9]{13}|4[0-9]{15}|1[0-9]{16})`, `samlp\|acme\|[a-z]{8}`, `waad\|[0-9A-Za-z_-]{43}`, `apple\|00[0-9]{4}\.[0-9a-f]{32}\.[0-9]{4}`), false},
	{"Cognito's identities", like(`(eu-west-1|us-east-2|ap-southeast-1):` + uuid), false},
	{"other identity providers' names", like(`[0-9A-Za-z][0-9A-Za-z_-]{42}`, `user_[0-9A-Za-z]{27}`, `00u[0-9A-Za-z]{17}`, `7656119[0-9]{10}`, `U[0-9a-f]{32}`, `_[0-9a-f]{42}`), false},
	{"`ORD-2025-001-002`, `20250302-100100-001`", like(`(ORD-|INV-|PL-|DE-)?`+year+`-[0-9]{3}-[0-9]{3}`, `pay_`+year+`-`+month+`-`+day+`-[0-9]{3}`,
		year+month+day+`-`+clock+sixty+sixty+`-[0-9]{3}`, `(ORD-|order_|DE-)?`+year+month+day+`-[0-9]{6}`, `(ORD-|DE)?`+year+month+day+clock+sixty+sixty), false},
	{"`1001`, `ORD-0000001001`", like(`(ORD-|ORD|W|no\.|order:)?[0-9]{1,6}`, `(ORD-|ORD|inv_)?00[0-9]{8}`, `(ORD-|u:)?[1-9][0-9]{0,8}`), false},
	{"`123-456-7890`, `123-1234567-1234567`", like(`(order-)?[0-9]{3}-[0-9]{3}-[0-9]{4}`, `[0-9]{3}-[0-9]{7}-[0-9]{7}`, `A?[0-9]{3}-[0-9]{3}-[0-9]{3}`, `[0-9]{4}-[0-9]{4}-[0-9]{4}`), false},
	{"EUI-64", like(`((dev:|eui-|eui|ad:)?`+pair+`(:`+pair+`){7})`, pair+`(-`+pair+`){7}`), false},
	{"hashes, object ids", like(object, `[0-9a-f]{40}`, `[0-9a-f]{64}`, `[0-9a-f]{2}(:[0-9a-f]{2}){19}`), false},
	{"KSUIDs, nanoids, cuids", like(`2[0-9A-Za-z]{26}`, `[0-9A-Za-z][0-9A-Za-z_-]{20}`, `[a-z][0-9a-z]{23}`), false},
	{"times and versions", like(year+`-`+month+`-`+day+`T`+clock+`:`+sixty+`:`+sixty+`\.[0-9]{9}Z`, `(run:)?`+epoch+`[0-9]{3}`, epoch+`([0-9]{6}|[0-9]{9})`,
		`v?[12]?[0-9]\.[12]?[0-9]\.[12]?[0-9]{1,2}`), false},
	{"names with colons", like(word+`:`+word+`:[0-9]{6}`, word+`::[0-9]{5}`, `App::`+word+`::[1-9]{4}`, `arn:aws:iam::2[0-9]{11}:`+word), false},
	{"EUI-64 in groups of four, traces, Windows Live's users", like(`windowslive\|[0-9a-f]{16}`, `[0-9a-f]{4}([.][0-9a-f]{4}){3}`, `[0-9a-f]{4}(:[0-9a-f]{4}){3}`, `00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]`), true},
	{"16 random digits alone", like(`[0-9]{16}`), true},
	{"16 random digits behind a prefix", like(`u_[0-9]{16}`), true},
	{"13 random digits alone", like(`[0-9]{13}`), true},
}
