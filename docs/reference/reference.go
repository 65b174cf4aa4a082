// Package reference holds the pages of codes, so that pages and commands explain those of their own release.
// It refuses to explain a code that those pages do not have.
package reference

import (
	"embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed reasons.md answers.md
var files embed.FS

// Entry is what the pages say of a code: of what it is one, what it means, and of a reason who is at fault
// and what to do.
type Entry struct{ Of, What, Fault, Do string }

var (
	// item is some codes in a cell with what they mean, such as `a`, `b`: meaning.
	item = regexp.MustCompile("^((?:`[^`]+`(?:, )?)+): (.+)$")
	code = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

// entries are those of each code, or of a pattern such as callee_failed_<status>.
var entries = sync.OnceValue(func() map[string][]Entry {
	all := map[string][]Entry{}
	for _, file := range []string{"reasons.md", "answers.md"} {
		text, _ := files.ReadFile(file) // it is embedded
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "|")), " | ")
			for at, cell := range cells {
				for one := range strings.SplitSeq(cell, "<br>") {
					found, e := item.FindStringSubmatch(one), Entry{Of: cells[0]}
					if found == nil || len(cells) == 1 {
						continue
					}
					if _, err := strconv.Atoi(e.Of); err == nil {
						e.Of = "an answer with status " + e.Of
					}
					if e.What = found[2]; at == 0 {
						e = Entry{Of: "a reason", What: found[2], Fault: cells[1], Do: cells[2]}
					}
					for name := range strings.SplitSeq(found[1], ", ") {
						name = strings.Trim(name, "`")
						all[name] = append(all[name], e)
					}
				}
			}
		}
	}
	return all
})

// Entries are those of a code, such as order_not_seen or callee_failed_503; none: it is not known.
func Entries(of string) []Entry {
	if found := entries()[of]; found != nil || !code.MatchString(of) {
		return found
	}
	for pattern, found := range entries() {
		begins, ends, _ := strings.Cut(pattern, "<")
		_, ends, is := strings.Cut(ends, ">")
		status := strings.TrimSuffix(strings.TrimPrefix(of, begins), ends)
		if !is || status == "" || begins+status+ends != of {
			continue
		}
		all := slices.Clone(found)
		for i := range all {
			all[i].What = strings.ReplaceAll(all[i].What, "that status", status)
		}
		return all
	}
	return nil
}
