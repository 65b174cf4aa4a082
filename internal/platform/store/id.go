package store

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// ID returns the id of a document that names identify, with the tenant first if producers choose them.
// Different names, of any content, have different ids. A hash comes first, because rising names would make a
// hot spot. ID(a, b)+"~" is the prefix of all ids below a and b.
func ID(names ...string) string {
	path := Path(names...)
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4]) + "-" + path
}

// Path returns an id for a collection that is read in the order of its names: the escaped names, without a
// hash. Path(a)+"~" is the prefix of all ids below a.
func Path(names ...string) string {
	escaped := make([]string, 0, 8)
	for _, name := range names { // PathEscape does not escape the tilde
		escaped = append(escaped, strings.ReplaceAll(url.PathEscape(name), "~", "%7E"))
	}
	return strings.Join(escaped, "~")
}
