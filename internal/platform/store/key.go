package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key names one document. A part is valid UTF-8 of 1 to MaxIDBytes, without a slash or a control
// character. Firestore reserves the form __x__.
type Key struct {
	Collection string
	ID         string
}

func (k Key) String() string { return k.Collection + "/" + k.ID }

// CheckKey returns an error that wraps ErrInvalid if the key cannot name a document.
func CheckKey(key Key) error {
	for _, part := range []string{key.Collection, key.ID} {
		if part == "" || len(part) > MaxIDBytes || part == "." || part == ".." {
			return fmt.Errorf("%w: key part of %d bytes", ErrInvalid, len(part))
		}
		if strings.ContainsFunc(part, func(r rune) bool { return r == '/' || r < 0x20 }) {
			return fmt.Errorf("%w: key part with a slash or a control character", ErrInvalid)
		}
		if !isName(part) {
			return fmt.Errorf("%w: key part that is reserved or not UTF-8", ErrInvalid)
		}
	}
	return nil
}

func isName(name string) bool {
	reserved := len(name) >= 4 && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__")
	return name != "" && !reserved && utf8.ValidString(name)
}
