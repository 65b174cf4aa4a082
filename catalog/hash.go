package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
)

// Hash names the files by 8 hexadecimal digits, as Terraform computes it too; empty: there are none.
func (c *Catalog) Hash() string { return c.hash }

// hashOf sums up the catalog's files by name, as sha256sum *.yaml | sha256sum does.
func hashOf(files fs.FS) string {
	names, err := fs.Glob(files, "*.yaml") // in order
	if err != nil || len(names) == 0 {
		return ""
	}
	all := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return ""
		}
		_, _ = fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(text), name) // a hash takes everything
	}
	return hex.EncodeToString(all.Sum(nil))[:8]
}
