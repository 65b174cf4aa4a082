package pages

import (
	"html/template"
	"path"
	"regexp"
	"strings"

	"billhook/docs/runbooks"
)

// runbook is the address of a runbook's page, by its name or its path in the repository.
func runbook(name string) string {
	return "/ops/runbooks/" + strings.TrimSuffix(path.Base(name), ".md")
}

type manual struct {
	Title  string
	Blocks []block
}

// block is a part of a runbook: a heading, code, the rows of a table, the first of which are its heads, or the lines of a text.
type block struct {
	Head, Code string

	Rows  [][]template.HTML
	Lines []template.HTML
}

// runbook shows a runbook of this release, whose Markdown is of a few forms.
func (p *Pages) runbook(v *visit) (any, error) {
	file, err := runbooks.Files.ReadFile(path.Base(v.param("name")) + ".md")
	if err != nil {
		return nil, errNoPage
	}
	title, text, _ := strings.Cut(strings.TrimPrefix(string(file), "# "), "\n")
	view := manual{Title: title}
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			_, code, _ := strings.Cut(part, "\n")
			view.Blocks = append(view.Blocks, block{Code: code})
			continue
		}
		for _, paragraph := range strings.Split(strings.TrimSpace(part), "\n\n") {
			view.Blocks = append(view.Blocks, blockOf(paragraph))
		}
	}
	return view, nil
}

var item = regexp.MustCompile(`\n(- |\d+\. )`)

func blockOf(paragraph string) (b block) {
	if head, ok := strings.CutPrefix(paragraph, "## "); ok {
		return block{Head: head}
	}
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
	other  = regexp.MustCompile(`\[([^\]]+)\]\(([a-z-]+)\.md[^)]*\)`)
	linked = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// marked is a text of our own with its code, its emphasis and its links to other runbooks.
func marked(text string) template.HTML {
	text = template.HTMLEscapeString(strings.TrimSpace(text))
	text = strong.ReplaceAllString(code.ReplaceAllString(text, "<code>$1</code>"), "<strong>$1</strong>")
	text = other.ReplaceAllString(text, `<a href="/ops/runbooks/$2">$1</a>`)
	return template.HTML(linked.ReplaceAllString(text, "$1")) //nolint:gosec // It is escaped.
}
