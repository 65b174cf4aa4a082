package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filter"
)

func ExampleParse() {
	binding, err := filter.Parse(`hasPrefix(attributes.routing_key, "billing.invoice.")`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(binding.Match(map[string]string{"routing_key": "billing.invoice.paid"}))
	fmt.Println(binding.Match(map[string]string{"routing_key": "billing.order.paid"}))
	// Output:
	// true
	// false
}

func TestFiltersTakeWhatTheySay(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{"kind": "invoice", "tenant": "t-1", "empty": "", "a key.with/signs": `say "no"`}
	for text, want := range map[string]bool{
		``:                                             true,
		` `:                                            true,
		`attributes.kind = "invoice"`:                  true,
		`attributes.kind="invoice"`:                    true,
		`attributes.kind = "Invoice"`:                  false,
		`attributes.missing = ""`:                      false,
		`attributes.empty = ""`:                        true,
		`attributes:kind`:                              true,
		`attributes:missing`:                           false,
		`attributes:"a key.with/signs"`:                true,
		`NOT attributes:missing`:                       true,
		`NOT NOT attributes:missing`:                   false,
		`hasPrefix(attributes.kind,"in")`:              true,
		`hasPrefix(attributes.kind, "")`:               true,
		`hasPrefix(attributes.missing, "")`:            false,
		`hasPrefix(attributes.kind, "order")`:          false,
		`attributes."a key.with/signs" = "say \"no\""`: true,
		`attributes:kind AND attributes:tenant AND attributes:empty`:                 true,
		`attributes:kind AND attributes:tenant AND attributes:missing`:               false,
		`attributes:missing OR attributes:none OR attributes:kind`:                   true,
		`attributes:missing OR attributes:none`:                                      false,
		`attributes:kind AND NOT attributes:missing`:                                 true,
		`(attributes:missing OR attributes:kind) AND attributes.tenant = "t-1"`:      true,
		`attributes.tenant = "t-2" OR (attributes:kind AND NOT attributes:tenant)`:   false,
		`NOT (attributes.tenant = "t-2" OR (attributes:kind AND attributes:tenant))`: false,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			parsed, err := filter.Parse(text)
			require.NoError(t, err)
			require.Equal(t, want, parsed.Match(attributes))
		})
	}
	require.False(t, must(t, `attributes:kind`).Match(nil))
}

func must(t *testing.T, text string) filter.Filter {
	t.Helper()
	parsed, err := filter.Parse(text)
	require.NoError(t, err)
	return parsed
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"AND beside OR":         `attributes:a AND attributes:b OR attributes:c`,
		"an operator unlike":    `attributes.kind != "invoice"`,
		"a value without quote": `attributes.kind = invoice`,
		"a single quote":        `attributes.kind = 'invoice'`,
		"an open string":        `attributes.kind = "invoice`,
		"an unknown escape":     `attributes.kind = "\x41"`,
		"an escape at the end":  `attributes.kind = "\`,
		"an open parenthesis":   `(attributes:kind`,
		"a closed parenthesis":  `attributes:kind)`,
		"another function":      `hasSuffix(attributes.kind, "x")`,
		"another field":         `message.data = "x"`,
		"small letters":         `attributes:a and attributes:b`,
		"no key":                `attributes. = "x"`,
		"no operator":           `attributes.kind`,
		"a name that goes on":   `attributesX:kind`,
		"two terms in a row":    `attributes:a attributes:b`,
		"a missing term":        `attributes:a AND`,
		"nothing negated":       `NOT`,
		"more than 256 bytes":   `attributes:` + strings.Repeat("k", 256),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := filter.Parse(text)
			require.ErrorIs(t, err, filter.ErrUnsupported)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`attributes.kind = "invoice" AND NOT hasPrefix(attributes.tenant, "t-")`, "kind", "invoice")
	f.Add(`(attributes:"a b" OR attributes:c)`, "c", "")
	f.Add(`attributes."\\\"" = "\\"`, "x", "y")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		parsed, err := filter.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, filter.ErrUnsupported)
			return
		}
		if strings.TrimSpace(text) == "" {
			return
		}
		negated, err := filter.Parse("NOT (" + text + ")")
		if err != nil {
			return // longer than a filter may be
		}
		attributes := map[string]string{key: value}
		require.NotEqual(t, parsed.Match(attributes), negated.Match(attributes))
	})
}
