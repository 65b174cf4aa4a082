package pii_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

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

func readValues(t *testing.T) (all values) {
	t.Helper()
	readYAML(t, "values.yaml", &all)
	return all
}

// readYAML reads a file of testdata.
func readYAML(t require.TestingT, file string, into any) {
	text, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into))
}

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
		"card-4539148803436467", "ibanPL61 1090 1014 0000 0712 1981 2874", "auth0|5f7c8ec7c33c6c004bbafe82", "tel:+48 601 234 567", "x::2001:db8::17:", "::", "1.2.3.4.", "00:1a:2b:ff:fe:3c:4d:5e",
		"2f3d0a11-1111-4111-8111-111111111111:1", "ilse@example.org", "aa1", "0", ":", "a:::", "1:2:3:4:5:6:7:", "+1 (", "555-123-4567x", "ad", "AD1", "A(0000000",
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
