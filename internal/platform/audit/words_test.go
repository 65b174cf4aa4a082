package audit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/audit"
)

// unseen are characters that a terminal acts on, or does not show.
var unseen = map[string]string{
	"a line break": "\n", "a carriage return": "\r", "an escape": "\x1b[2J", "a control of one byte more": "\u009b31m", "a delete": "\x7f",
	"a turn of the direction": "\u202e", "an isolate": "\u2066", "a mark of direction": "\u200f", "an Arabic mark": "\u061c",
	"a separator of lines": "\u2028", "a space without width": "\u200b", "a byte order mark": "\ufeff", "a tag": "\U000e0041", "a soft hyphen": "\u00ad",
}

func TestAReasonAndANameHaveNoCharacterThatIsNotSeen(t *testing.T) {
	t.Parallel()
	for name, text := range unseen {
		for what, err := range map[string]error{"reason": audit.CheckWhy("found" + text + "again"), "operator's name": audit.CheckWho("token:ada" + text)} {
			require.ErrorIs(t, err, audit.ErrInvalid, name)
			require.ErrorContains(t, err, what, name)
		}
		escaped := audit.Escape("found" + text + "again")
		require.NotContains(t, escaped, text, name)
		require.NoError(t, audit.CheckWhy(escaped), "what is shown may be kept")
		require.Regexp(t, `^found\\.*again$`, escaped, name)
	}
	require.Equal(t, "a�b", audit.Escape("a\xffb"))
	require.Equal(t, "a\\u202e\nb\n", audit.EscapeLines("a\u202e\nb\n"), "the ends of lines stay")
	require.Equal(t, `"\u202e\udb40\udc41"`, audit.EscapeJSON("\"\u202e\U000e0041\""))
	for _, plain := range []string{"", "Grüße, 価格, \"quoted\", 100 %", "نمی\u200cخواهم", "👩\u200d💻"} {
		require.NoError(t, audit.CheckWhy(plain))
		require.Equal(t, plain, audit.Escape(plain))
	}
}

func TestAReasonHasNoPersonalData(t *testing.T) {
	t.Parallel()
	for found, why := range map[string]string{
		"email": "asked for by ilse@example.org", "card": "paid with 4111 1111 1111 1111", "phone": "call +49 30 901820",
		"iban": "to DE89370400440532013000", "ip": "from 203.0.113.7",
	} {
		err := audit.CheckWhy(why)
		require.ErrorIs(t, err, audit.ErrInvalid, why)
		require.ErrorContains(t, err, "("+found+")")
		for word := range strings.FieldsSeq(why) {
			if strings.ContainsAny(word, "@0123456789") {
				require.NotContains(t, err.Error(), word, "the value is not repeated")
			}
		}
	}
	require.NoError(t, audit.CheckWho("ada@example.org"), "that is how she is known")
}

func TestAReasonMayNameWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for _, why := range []string{
		"the product is known now", "ticket OPS-4711, 2026-11-22 12:30", "INC-00123456", "refund of 1234.50 EUR on 2026-03-02T10:15:00Z",
		"operation 6f9619ff-8b86-d011-b42d-00cf4fc964ff", "ticket 1234567890", "commit 79a6775 and 2196634",
	} {
		require.NoError(t, audit.CheckWhy(why), why)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		why := fmt.Sprintf("order 500%016d, product 41%016d", random.Int64N(1e16), random.Int64N(1e16))
		require.NoError(t, audit.CheckWhy(why), why)
	}
}
