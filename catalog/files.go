package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
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

// With returns the catalog that the same deployment would have with other files, by their names, such as
// products.yaml. The error joins every mistake.
func (c *Catalog) With(files map[string]string) (*Catalog, error) {
	if c.files == nil {
		return nil, errors.New("catalog: it was made of no files")
	}
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := fs.Stat(embedded, name); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: no file of a catalog has this name", shown(name)))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	replaced, err := load(overlaid{c.files, files})
	if err != nil {
		return nil, err
	}
	narrowed, err := replaced.Only(c.only)
	if err != nil || c.tasks.asked == "" {
		return narrowed, err
	}
	return narrowed.ForTasks(c.tasks.asked)
}

// overlaid is a folder in which some files are replaced.
type overlaid struct {
	fs.FS
	files map[string]string
}

// ReadFile implements fs.ReadFileFS.
func (o overlaid) ReadFile(name string) ([]byte, error) {
	if text, ok := o.files[name]; ok {
		return []byte(text), nil
	}
	return fs.ReadFile(o.FS, name)
}
