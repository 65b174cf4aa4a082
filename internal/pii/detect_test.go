package pii_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/pii"
)

// values are those of testdata/values.yaml.
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

func TestDetectorsFindPersonalDataAndNoIdentifiers(t *testing.T) {
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

func TestDigitsAreCheckedByTheirRule(t *testing.T) {
	t.Parallel()
	for _, test := range readValues(t).Digits {
		for rule, want := range map[pii.Rule]string{pii.ID: test.ID, pii.UID: test.UID} {
			found, _ := pii.Detect(rule, test.Digits)
			require.Equal(t, want, found, "%s: %s", rule.Name(), test.What)
		}
	}
	for _, rule := range []pii.Rule{pii.Amount, pii.Integer, pii.Quantity} { // numbers are not checked
		for digits, want := range map[string]bool{
			"4539148803436467": false, "378282246310005": false, "4539148803436468": true, "9007199254740991": true,
			"4222222222222": true, // a possible amount in rials
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
		// A value that is found alone is also found behind a name, and in capitals.
		found, _ := pii.Detect(pii.UID, value)
		if found != "" && found != "phone" && !strings.HasPrefix(value, " ") {
			for _, other := range []string{"x-" + value, "acme|" + value} {
				_, ok := pii.Detect(pii.UID, other)
				require.True(t, ok, "%q hides %s", other, found)
			}
		}
		if found == "card" || found == "ip" || found == "email" {
			_, ok := pii.Detect(pii.UID, upper(value))
			require.True(t, ok, "%s is not found in capitals", found)
		}
	})
}

// upper changes ASCII alone, as the detectors do.
func upper(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, text)
}

func TestRuleAcceptsOnlyItsShape(t *testing.T) {
	t.Parallel()
	all := readValues(t)
	shapes := map[pii.Rule]shape{pii.UID: all.UIDs, {}: {Bad: []string{"", "a", "1"}}}
	for _, rule := range []pii.Rule{
		pii.ID, pii.Code, pii.Currency, pii.Time, pii.Amount, pii.Integer, pii.Quantity,
	} {
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

// The generators of ids and of personal data are independent of the detectors.
func TestDetectionRatesAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- go test ./internal/pii -run Phones -update -->\n", "<!-- end -->\n"
	part := 1
	if testing.Short() {
		part = 20 // which is enough for the assertions, if not for the page's numbers
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
		"100 % means all")
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

// refused is how many ids of a kind were taken for personal data.
type refused struct {
	ids
	hits int
}

func measure(t require.TestingT, part int) (r result) {
	all := readIDs(t)
	for i, s := range all.spellings() {
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
	for i, of := range all.Kinds {
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

// percent rounds down, so that 100 % means all.
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

// alikes are the rows of a table, each of a name and its figures; rows with the same figures are joined.
type alikes [][2]string

func (a *alikes) add(name, figures string) {
	if i := slices.IndexFunc(*a, func(row [2]string) bool { return row[1] == figures }); i >= 0 {
		(*a)[i][0] += "; " + name
		return
	}
	*a = append(*a, [2]string{name, figures})
}

func (a alikes) rows() (text string) {
	for _, row := range a {
		text += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	return text
}

func exactly(t *testing.T, p *pii.Projection, in string) (string, error) {
	t.Helper()
	d := filetest.Must(pii.Parse([]byte(in)))(t)
	out, err := p.Exact(nil, d)
	return string(out), err
}

func TestExactReadsATimeWithoutAnOffsetAsUTC(t *testing.T) {
	t.Parallel()
	for given, want := range readValues(t).Times {
		out, err := exactly(t, lenient(), `{"at":"`+given+`"}`)
		if want == "" {
			require.EqualError(t, err, "pii: at: timestamp", given)
			want = given
		} else {
			require.Equal(t, `{"at":"`+want+`"}`, out)
		}
		require.Equal(t, want, pii.InUTC(given))
	}
}

func TestAttributesNeedARule(t *testing.T) {
	t.Parallel()
	rules := map[string]pii.Rule{"event_id": pii.ID, "uid": pii.UID}
	require.NoError(t, pii.CheckAttributes(map[string]string{"event_id": "1", "uid": "u"}, rules))
	err := pii.CheckAttributes(
		map[string]string{"event_id": "", "uid": "198.51.100.23", "ilse@example.org": "x"}, rules)
	require.Equal(t, []pii.Violation{{"attribute", "unknown"}, {"event_id", "id"}, {"uid", "ip"}},
		refusedBy(t, err).Violations)
}
