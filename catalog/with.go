package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

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
