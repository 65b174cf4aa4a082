package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
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

// CheckKey reports whether the key can name a document, wrapping ErrInvalid.
func CheckKey(key Key) error {
	for _, part := range []string{key.Collection, key.ID} {
		if part == "" || len(part) > MaxIDBytes || part == "." || part == ".." {
			return fmt.Errorf("%w: key part of %d bytes", ErrInvalid, len(part))
		}
		for i := range len(part) {
			if part[i] == '/' || part[i] < 0x20 {
				return fmt.Errorf("%w: key part with a slash or a control character", ErrInvalid)
			}
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

// ID is the id of a document that is known by names, the tenant's first where producers give them:
// other names have another id, and what a name holds does not matter. A hash stands first, because
// names rise, and rising ids are a hot spot. ID(a, b)+"~" begins the ids of all that is of a's b.
func ID(names ...string) string {
	path := Path(names...)
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4]) + "-" + path
}

// Path is the id of a document of a collection that people read in the order of its names: the names,
// escaped, without a hash. Path(a)+"~" begins the ids of all that is a's.
func Path(names ...string) string {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = strings.ReplaceAll(url.PathEscape(name), "~", "%7E") // PathEscape leaves the tilde
	}
	return strings.Join(escaped, "~")
}
