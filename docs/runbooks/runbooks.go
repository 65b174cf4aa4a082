// Package runbooks holds the runbooks, so that a worker shows those of its own release, and reads the few
// forms of their Markdown. It refuses to show what is no runbook.
package runbooks

import (
	"embed"
	"html/template"
	"regexp"
	"strings"
)

// Files are the runbooks, such as dead-letters.md.
//
//go:embed *.md
var Files embed.FS

// Book is a runbook.
type Book struct {
	Title  string
	Blocks []Block
}

// Block is a part of a runbook: a heading, code, the rows of a table, the first of which are its heads, or
// lines of text.
type Block struct {
	Head, Code string

	Rows  [][]template.HTML
	Lines []template.HTML
}

// Anchor is what a link to the heading names.
func (b Block) Anchor() string { return strings.ReplaceAll(strings.ToLower(b.Head), " ", "-") }

// Read returns the runbook of a name, such as dead-letters, and reports whether there is one.
func Read(name string) (book Book, found bool) {
	file, err := Files.ReadFile(name + ".md")
	if err != nil {
		return book, false
	}
	var text string
	book.Title, text, _ = strings.Cut(strings.TrimPrefix(string(file), "# "), "\n")
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			_, code, _ := strings.Cut(part, "\n")
			book.Blocks = append(book.Blocks, Block{Code: code})
			continue
		}
		for _, paragraph := range strings.Split(strings.TrimSpace(part), "\n\n") {
			if head, ok := strings.CutPrefix(paragraph, "## "); ok {
				head, paragraph, _ = strings.Cut(head, "\n")
				book.Blocks = append(book.Blocks, Block{Head: head})
			}
			book.Blocks = append(book.Blocks, blockOf(paragraph))
		}
	}
	return book, true
}

var item = regexp.MustCompile(`\n(- |\d+\. )`)

func blockOf(paragraph string) (b Block) {
	if !strings.HasPrefix(paragraph, "|") {
		for line := range strings.SplitSeq(item.ReplaceAllString(paragraph, "\x00$1"), "\x00") {
			b.Lines = append(b.Lines, marked(line))
		}
		return b
	}
	for line := range strings.Lines(paragraph) {
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		var row []template.HTML
		for value := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), " | ") {
			row = append(row, marked(value))
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}

var (
	code   = regexp.MustCompile("`([^`]+)`")
	strong = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	other  = regexp.MustCompile(`\[([^\]]+)\]\(([a-z-]+)\.md([^)]*)\)`)
	part   = regexp.MustCompile(`\[([^\]]+)\]\((#[^)]*)\)`)
	linked = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// marked is a text with its code, its emphasis, and its links to other runbooks and to parts of its own.
func marked(text string) template.HTML {
	text = template.HTMLEscapeString(strings.TrimSpace(text))
	text = strong.ReplaceAllString(code.ReplaceAllString(text, "<code>$1</code>"), "<strong>$1</strong>")
	text = other.ReplaceAllString(text, `<a href="/ops/runbooks/$2$3">$1</a>`)
	text = part.ReplaceAllString(text, `<a href="$2">$1</a>`)
	return template.HTML(linked.ReplaceAllString(text, "$1")) //nolint:gosec // It is escaped.
}
