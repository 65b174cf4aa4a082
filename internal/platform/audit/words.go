package audit

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"billhook/internal/pii"
)

// CheckWhy refuses a reason that must not be kept, or shown to the next person: one that is too
// long, is not text, has characters that are not seen, or has what a detector takes for personal
// data. An empty reason passes. The error wraps ErrInvalid and repeats nothing of the reason.
func CheckWhy(why string) error {
	if err := check("reason", why, MaxWhy); err != nil {
		return err
	}
	// The long numbers of orders and products are said in reasons, and one in ten looks like a card's.
	words := strings.FieldsFunc(why, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, word := range words {
		if len(word) > len("4111111111111111") && strings.Trim(word, "0123456789") == "" {
			why = strings.Replace(why, word, "id", 1)
		}
	}
	if found, is := pii.Detect(pii.UID, why); is {
		return fmt.Errorf("%w: the reason has what looks like personal data (%s): name things by their ids", ErrInvalid, found)
	}
	return nil
}

// CheckWho refuses an operator's name that must not be kept or shown. An e-mail address is how some
// operators are known, so the detectors do not look at names.
func CheckWho(who string) error { return check("operator's name", who, MaxWho) }

func check(what, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("%w: the %s is longer than %d bytes", ErrInvalid, what, limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsFunc(text, unseen):
		return fmt.Errorf("%w: the %s has a line break, or another character that is not seen", ErrInvalid, what)
	}
	return nil
}

// unseen reports whether a character moves the cursor, turns the direction of the text, breaks its
// line, or does not show. The two that join letters, or part them, are part of how some languages
// are written.
func unseen(r rune) bool {
	const parts, joins = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || (unicode.Is(unicode.Cf, r) && r != parts && r != joins)
}

// Escape returns a text with each character that is not seen as its number, such as \u202e: what
// was kept before it was refused must not reach a terminal.
func Escape(text string) string {
	return escapeBy(text, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// EscapeLines does the same in each line of a text, whose ends stay.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}

// EscapeJSON does the same in the texts of a JSON document of one line, as JSON writes numbers.
func EscapeJSON(line string) string {
	return escapeBy(line, func(r rune) string {
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

func escapeBy(text string, number func(rune) string) string {
	if !strings.ContainsFunc(text, unseen) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if unseen(r) {
			_, _ = out.WriteString(number(r))
		} else {
			_, _ = out.WriteRune(r)
		}
	}
	return out.String()
}
