package store

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

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
