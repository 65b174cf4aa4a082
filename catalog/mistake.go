package catalog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mistake is something that is wrong with the catalog.
type Mistake struct {
	File  string `json:"file"`
	Line  int    `json:"line,omitzero"`   // of the key, or of its entry; 0: no line of the file
	Where string `json:"where,omitempty"` // the entry, such as "queue paynow-events"; empty: the file
	Key   string `json:"key,omitempty"`   // the path of the key there; empty: the entry itself
	What  string `json:"what"`

	cause error
}

// Error returns the mistake as one line: file:line: where: key: what.
func (m *Mistake) Error() string {
	at := m.File
	if m.Line > 0 {
		at += ":" + strconv.Itoa(m.Line)
	}
	empty := func(part string) bool { return part == "" }
	return strings.Join(slices.DeleteFunc([]string{at, m.Where, m.Key, m.What}, empty), ": ")
}

// Unwrap returns the error that the mistake was made of, if any.
func (m *Mistake) Unwrap() error { return m.cause }

// Mistakes returns the mistakes that an error of this package joins. Any other error becomes one of no file.
func Mistakes(err error) (all []*Mistake) {
	switch e := err.(type) { //nolint:errorlint // the joined errors are taken apart here
	case nil:
	case *Mistake:
		all = append(all, e)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, Mistakes(one)...)
		}
	default:
		all = append(all, &Mistake{What: err.Error(), cause: err})
	}
	return all
}

// lines has the lines of entries and keys in the files, by place and path.
type lines map[string]int

// of returns the line of the path, or of the nearest entry around it.
func (l lines) of(place, path string) int {
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if line := l[place+": "+at]; line > 0 {
			return line
		}
	}
	for at := place; at != ""; at = at[:max(0, strings.LastIndex(at, ": "))] {
		if line := l[at]; line > 0 {
			return line
		}
	}
	return 0
}

// mistake returns a mistake at a place (file, or file and entry) and the path of a key.
func (l lines) mistake(place, path, what string) *Mistake {
	file, where, _ := strings.Cut(place, ": ")
	return &Mistake{File: file, Line: l.of(place, path), Where: where, Key: path, What: what}
}

var yamlLine = regexp.MustCompile(`\bline ([0-9]+): `)

// ofFile returns the mistake of a file that could not be read.
func ofFile(file string, err error) *Mistake {
	m := &Mistake{File: file, What: err.Error(), cause: err}
	if found := yamlLine.FindStringSubmatchIndex(m.What); found != nil {
		m.Line, _ = strconv.Atoi(m.What[found[2]:found[3]])
		m.What = m.What[:found[0]] + m.What[found[1]:]
	}
	return m
}

// WrongHandler returns a mistake in a queue's entry for an event type, for a package that knows handlers.
func (c *Catalog) WrongHandler(queue, eventType string, err error) *Mistake {
	m := c.lines.mistake(queuePlace+" "+queue, handlerPath(eventType), err.Error())
	m.Key, m.cause = "event type "+eventType, err
	if c.files == nil {
		m.File = "" // the catalog was made of no files
	}
	return m
}

// ByLine orders mistakes by file, and by line there.
func ByLine(a, b *Mistake) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Error(), b.Error()))
}

// inherited is a mistake at a path that a queue does not set itself.
type inherited struct{ place, path, what string }

// settleInherited reports the mistake of a default once, not for every queue that inherits it. It omits
// mistakes that follow from a default that cannot be read.
func (r *reader) settleInherited(defaults Queue, c *Catalog) {
	unread := slices.ContainsFunc(r.mistakes, func(m *Mistake) bool {
		return strings.HasPrefix(m.Key, "defaults.")
	})
	probe := newReader()
	probe.checkQueue("", defaults, nil)
	if c.Contracts != nil {
		probe.checkContracts("", defaults, c.Contracts)
	}
	for _, i := range r.inherited {
		same := func(m *Mistake) bool { return m.Key == i.path && m.What == i.what }
		ofAll := r.lines[queuesFile+": defaults."+i.path] > 0 && slices.ContainsFunc(probe.mistakes, same)
		if ofAll {
			i.place, i.path = queuesFile, "defaults."+i.path
		}
		if !ofAll || !unread {
			r.report(i.place, i.path, i.what)
		}
	}
}

// report records a mistake once.
func (r *reader) report(place, path, what string) {
	m := r.lines.mistake(place, path, what)
	if !slices.ContainsFunc(r.mistakes, func(known *Mistake) bool { return *known == *m }) {
		r.mistakes = append(r.mistakes, m)
	}
}

// note records the line of a place or path.
func (r *reader) note(place, path string, line int) {
	if path != "" {
		place = fmt.Sprintf("%s: %s", place, path)
	}
	if r.lines[place] == 0 {
		r.lines[place] = line
	}
}
