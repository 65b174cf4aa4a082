package pii_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/pii"
)

// values are those of testdata/values.yaml, which says what they are.
type values struct {
	Personal    map[string][]string // by what is found in them
	Identifiers []string
	UIDs        shape            `yaml:"uids"`
	Shapes      map[string]shape // by the names of their rules
	Times       map[string]string
	Digits      []struct{ What, Digits, ID, UID string }
}

type shape struct{ Good, Bad []string }

func readValues(t *testing.T) values { return filetest.YAML[values](t, "testdata", "values.yaml") }

func TestTheDetectorsFindPersonalDataAndAreSilentAboutIdentifiers(t *testing.T) {
	t.Parallel()
	all := readValues(t)
	require.Len(t, all.Personal, 5)
	for want, values := range all.Personal {
		for _, value := range values {
			found, ok := pii.Detect(pii.UID, value)
			require.True(t, ok, value)
			require.Equal(t, want, found, value)
		}
	}
	for _, id := range append(all.Identifiers, all.UIDs.Good...) {
		found, ok := pii.Detect(pii.UID, id)
		require.False(t, ok, "%s is taken for %s", id, found)
	}
}

func TestDigitsAloneAreLookedAtAsTheirRuleSays(t *testing.T) {
	t.Parallel()
	for _, test := range readValues(t).Digits {
		for rule, want := range map[pii.Rule]string{pii.ID: test.ID, pii.UID: test.UID} {
			found, _ := pii.Detect(rule, test.Digits)
			require.Equal(t, want, found, "%s: %s", rule.Name(), test.What)
		}
	}
	for _, rule := range []pii.Rule{pii.Amount, pii.Integer, pii.Quantity} { // no number is a card's
		for digits, want := range map[string]bool{
			"4539148803436467": false, "378282246310005": false, "4539148803436468": true, "9007199254740991": true,
			"4222222222222": true, // so many cents are somebody's rials
		} {
			require.Equal(t, want, rule.Valid(digits), "%s %s", rule.Name(), digits)
		}
	}
	require.False(t, pii.Integer.Valid("6205500000000000004"))
}

func FuzzDetect(f *testing.F) {
	for _, value := range []string{
		"card-4539148803436467", "ibanPL61 1090 1014 0000 0712 1981 2874", "auth0|5f7c8ec7c33c6c004bbafe82",
		"tel:+48 601 234 567", "x::2001:db8::17:", "::", "1.2.3.4.", "00:1a:2b:ff:fe:3c:4d:5e",
		"2f3d0a11-1111-4111-8111-111111111111:1", "ilse@example.org", "aa1", "0", ":", "a:::", "1:2:3:4:5:6:7:",
		"+1 (", "555-123-4567x", "ad", "AD1", "A(0000000",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, rule := range []pii.Rule{pii.ID, pii.UID, pii.Code} {
			found, ok := pii.Detect(rule, value)
			require.Equal(t, found != "", ok)
			require.Contains(t, []string{"", "email", "ip", "iban", "card", "phone"}, found)
		}
		// A value that is found alone is found behind a name, too, and in capitals.
		found, _ := pii.Detect(pii.UID, value)
		if found != "" && found != "phone" && !strings.HasPrefix(value, " ") {
			for _, other := range []string{"x-" + value, "acme|" + value} {
				_, ok := pii.Detect(pii.UID, other)
				require.True(t, ok, "%q hides %s", other, found)
			}
		}
		if found == "card" || found == "ip" || found == "email" {
			_, ok := pii.Detect(pii.UID, upper(value))
			require.True(t, ok, "capitals hide %s", found)
		}
	})
}

// upper is for ASCII alone, as the detectors are.
func upper(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, text)
}

func TestARuleTakesItsShapeAlone(t *testing.T) {
	t.Parallel()
	all := readValues(t)
	shapes := map[pii.Rule]shape{pii.UID: all.UIDs, {}: {Bad: []string{"", "a", "1"}}}
	for _, rule := range []pii.Rule{pii.ID, pii.Code, pii.Currency, pii.Time, pii.Amount, pii.Integer, pii.Quantity} {
		require.NotEmpty(t, all.Shapes[rule.Name()].Good, rule.Name())
		shapes[rule] = all.Shapes[rule.Name()]
	}
	for rule, shape := range shapes {
		for _, value := range shape.Good {
			require.True(t, rule.Valid(value), "%s: %s", rule.Name(), value)
		}
		for _, value := range shape.Bad {
			require.False(t, rule.Valid(value), "%s: %s", rule.Name(), value)
		}
	}
	require.False(t, pii.ID.Valid("auth0|5f7c"), "an order's id has no bar")
}

const (
	// texts is how many are drawn of each spelling, and drawn how many of each kind of id.
	texts = 10_000
	drawn = 100_000
)

// The generators of ids and of what is personal know nothing of the detectors.
func TestAllButPhonesAreFoundNoIDIsRefusedAndThePageSaysHowMany(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- go test ./internal/pii -run Phones -update -->\n", "<!-- end -->\n"
	part := 1
	if testing.Short() {
		part = 20 // which is enough for all but the page's numbers
	}
	measured := measure(t, part)
	for _, one := range measured.recalls {
		if one.kind != "phone" {
			require.Equal(t, [3]int{texts / part, texts / part, texts / part}, one.found, "%s %s", one.kind, one.name)
		}
	}
	for _, one := range measured.refused {
		require.True(t, one.hits <= drawn/part/50_000 || one.Chance && one.hits < drawn/part/20, one.Name)
	}
	require.Equal(t, []string{"99.9 %", "100 %"}, []string{percent(99_999, 100_000), percent(7, 7)},
		"a share below all is below a hundred percent")
	if part > 1 {
		return
	}
	filetest.Part(t, measured.table(), begin, end, "..", "..", "docs", "why", "personal-data.md")
}

type result struct {
	recalls []recall
	refused []refused
}

type recall struct {
	spelling
	found [3]int
}

// refused is how many ids of a kind were taken for something else.
type refused struct {
	ids
	hits int
}

func measure(t require.TestingT, part int) (r result) {
	for i, s := range spellings {
		g, one := newGenerator(uint64(i)), recall{spelling: s}
		for range texts / part {
			personal := s.draw(g)
			for at, p := range places {
				if found, _ := pii.Detect(pii.UID, p.put(g, personal)); found == s.kind {
					one.found[at]++
				}
			}
		}
		r.recalls = append(r.recalls, one)
	}
	for i, of := range allIDs(t) {
		g, draw, one := newGenerator(uint64(1000+i)), like(of.Draw...), refused{ids: of}
		for range drawn / part {
			id := draw(g)
			_, asUID := pii.Detect(pii.UID, id)
			if _, asID := pii.Detect(pii.ID, id); asUID || asID {
				one.hits++
			}
		}
		r.refused = append(r.refused, one)
	}
	return r
}

// percent rounds down: what is not all is not 100 %.
func percent(part, of int) string {
	return strings.Replace(fmt.Sprintf("%.1f %%", float64(part*1000/of)/10), ".0", "", 1)
}

func (r *result) table() string {
	var b strings.Builder
	b.WriteString("| found | alone | behind a prefix | in a sentence |\n| --- | ---: | ---: | ---: |\n")
	alike := alikes{}
	line := func(name string, found [3]int, of int) {
		alike.add(name, fmt.Sprintf("%s | %s | %s", percent(found[0], of), percent(found[1], of),
			percent(found[2], of)))
	}
	personal := 0
	for _, kind := range []string{"email", "ip", "card", "iban", "phone"} {
		var found [3]int
		of := 0
		for _, one := range r.recalls {
			if one.kind == kind {
				of += texts
				for i, n := range one.found {
					found[i] += n
					personal += n
				}
			}
		}
		line("**"+kind+"**", found, of)
	}
	for _, one := range r.recalls {
		if one.kind == "phone" {
			line("phone, "+one.name, one.found, texts)
		}
	}
	fmt.Fprintf(&b, "%s\n| refused by chance | of %d |\n| --- | ---: |\n", alike.rows(), drawn)
	alike = alikes{}
	hits, ids := 0, 0
	for _, one := range r.refused {
		alike.add(one.Name, strconv.Itoa(one.hits))
		if !one.Chance {
			hits += one.hits
			ids += drawn
		}
	}
	fmt.Fprintf(&b, "%s\n%d of each spelling and %d of each kind of id were drawn, by seed %d. Of %d ids, "+
		"without those\nof random digits and groups of four, %d were refused: a precision of %s.\n",
		alike.rows(), texts, drawn, seed, ids, hits, percent(personal, personal+hits))
	return b.String()
}

// alikes are rows of a table, of which those with the same figures are one.
type alikes struct {
	figures []string
	names   map[string][]string
}

func (a *alikes) add(name, figures string) {
	if a.names == nil {
		a.names = map[string][]string{}
	}
	if a.names[figures] == nil {
		a.figures = append(a.figures, figures)
	}
	a.names[figures] = append(a.names[figures], name)
}

func (a *alikes) rows() (text string) {
	for _, figures := range a.figures {
		text += fmt.Sprintf("| %s | %s |\n", strings.Join(a.names[figures], "; "), figures)
	}
	return text
}

type generator struct{ *rand.Rand }

const seed = 20261121

func newGenerator(stream uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, stream))} }

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

func (g *generator) between(least, most int) int { return least + g.IntN(most-least+1) }

type place struct {
	name string
	put  func(g *generator, personal string) string
}

var words, letters = like(`card|iban|mail|ip|user|CUSTOMER|acct|paid|invoice|samlp\|acme|x`),
	like(`[A-Za-z]{1,8}`)

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
		return fmt.Sprintf(pick(g, "%s", "Please write to %s before noon.", "my new one is %s, the old one is gone",
			"(%s)", "order 1001 of %s", "from %s; see above", "\"%s\"",
			"Dear Ilse,\n%s\nRegards"), personal)
	}},
}

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

type spelling struct {
	kind, name string
	draw       form
}

// Numbers of phones, with ~ for a gap: with the country's code, and as people at home write them.
const (
	abroad = `(1~[2-9][0-9]{2}~[2-9][0-9]{2}~[0-9]{4}|44~7[0-9]{3}~[0-9]{6}|47~[2345679][0-9](~[0-9]{2}){3}|(48|34|61)~[5-9][0-9]{2}(~[0-9]{3}){2})`
	atHome = `([2-9][0-9]{2}~[2-9][0-9]{2}~[0-9]{4}|0[1234679](~[0-9]{2}){4}|[5-8][0-9]{2}(~[0-9]{3}){2})`
)

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
	{
		"iban", "in groups", func(g *generator) string {
			return grouped(g.cased(g.iban()), pick(g, " ", "-", "."), 4)
		},
	},
	{"phone", "`+48601234567`", phone(`\+`+abroad, "")},
	{"phone", "`+48 601 234 567`, with dashes or dots", phone(`\+`+abroad, " ", "-", ".")},
	{"phone", "`0048601234567`", phone(`00`+abroad, "")},
	{"phone", "`0048 601 234 567`", phone(`00`+abroad, " ")},
	{
		"phone", "`tel:48601234567`, `phone-601-234-567`",
		phone(`(?i)(tel|phone|mobile|whatsapp)[-:_]?(`+abroad+`|`+atHome+`)`, "", "-", "."),
	},
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

// cards are networks: how their numbers begin and go on, without the last digit, and the groups they are
// written in.
var cards = []struct {
	body  form
	sizes [][]int
}{
	{like(`4[0-9]{14}`), [][]int{{4}}},
	{like(`5[1-5][0-9]{13}`), [][]int{{4}}},
	{like(`2(22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{11}`), [][]int{{4}}},
	{like(`3[47][0-9]{12}`), [][]int{{4}, {4, 6, 5}}},
	{like(`3[68][0-9]{11}`, `30[05][0-9]{10}`), [][]int{{4}, {4, 6, 4}}},
	{like(`(6011|64[4-9][0-9]|65[0-9]{2})([0-9]{11}|[0-9]{14})`), [][]int{{4}}},
	{like(`35(2[89]|[3-8][0-9])[0-9]{11}`), [][]int{{4}}},
	{like(`62([0-9]{13}|[0-9]{16})`), [][]int{{4}}},
	{like(`(5018|5020|5038|6304|6759|6761)([0-9]{8}|[0-9]{11}|[0-9]{14})`), [][]int{{4}}},
}

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
	characters = map[string]string{
		"n": "0123456789", "a": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "c": strings.Repeat("0123456789", 24) +
			"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	}
)

// iban is one of a country; its check digits are reckoned as ISO 13616 says. Banks fill the places of digits
// or letters with digits, mostly.
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

// ids are of one kind, drawn by one of the expressions. Chance: some are a card's number by any rule that
// finds cards.
type ids struct {
	Name   string
	Draw   []string
	Chance bool
}

func allIDs(t require.TestingT) []ids {
	all := filetest.YAML[struct {
		Parts map[string]string
		Kinds []ids
	}](t, "testdata", "ids.yaml")
	for _, of := range all.Kinds {
		for i := range of.Draw {
			of.Draw[i] = os.Expand(of.Draw[i], func(part string) string { return all.Parts[part] })
		}
	}
	return all.Kinds
}
