package main

import (
	"cmp"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"billhook/internal/platform/audit"
)

// screen is what a person reads on.
type screen struct {
	// width is how many characters a line may have; 0: usualWidth.
	width  int
	colour bool
}

// usualWidth is the width where no terminal and no COLUMNS says another.
const usualWidth = 100

// screenOf finds the width in COLUMNS, else asks the terminal. Text has colours on a terminal alone,
// and not where NO_COLOR is set (https://no-color.org) or the terminal is a dumb one.
func screenOf(out io.Writer, getenv func(string) string) screen {
	s := screen{width: usualWidth}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.colour = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			s.width = width
		}
	}
	if width, err := strconv.Atoi(getenv("COLUMNS")); err == nil && width > 0 {
		s.width = width
	}
	return s
}

// What begins and ends text that stands out: bold and red.
const (
	alertBegins = "\x1b[1;31m"
	alertEnds   = "\x1b[0m"
)

// alert makes text stand out, where there are colours. The text itself must say that it is an alert.
func (p *program) alert(text string) string {
	if !p.screen.colour {
		return text
	}
	return alertBegins + text + alertEnds
}

// cell is one of a table.
type cell struct {
	text  string
	alert bool
}

// cellOf shows what is empty as a dash.
func (p *program) cellOf(text string) (c cell) {
	if inner, ok := strings.CutPrefix(text, alertBegins); ok && p.screen.colour {
		if inner, c.alert = strings.CutSuffix(inner, alertEnds); c.alert {
			text = inner
		}
	}
	if c.text = audit.Escape(text); c.text == "" {
		c.text = "-"
	}
	return c
}

// table prints rows in columns below their names. It prints nothing with --json.
//
// Lines fit the screen: cells with several words are wrapped, then names at their signs, such as dots and hyphens. The first
// column is what a person types next, and stays whole. Where that is not enough, the columns of less are left out, the first
// of them first. The last line says which. Only then are ids and the first column broken.
// With --wide nothing is wrapped or left out.
func (p *program) table(columns []string, rows [][]string, less ...string) {
	if p.asJSON {
		return
	}
	g := make(grid, 0, 1+len(rows))
	for _, texts := range slices.Concat([][]string{columns}, rows) {
		line := make([]cell, len(texts))
		for i, text := range texts {
			line[i] = p.cellOf(text)
		}
		g = append(g, line)
	}
	widths, left := g.widths(0, nil), []string(nil)
	if !p.wide {
		widths, left = g.fit(cmp.Or(p.screen.width, usualWidth), less)
	}
	for _, line := range g {
		_, _ = io.WriteString(p.stdout, p.wrapped(line, widths)) // a closed terminal is no failure of the command
	}
	if len(left) > 0 {
		p.printf("Left out: %s. See all with --wide.\n", strings.Join(left, ", "))
	}
}

// record prints one row of a table with each cell beside its name, so that none is wrapped.
func (p *program) record(columns, row []string) {
	most := 0
	for _, name := range columns {
		most = max(most, utf8.RuneCountInString(name))
	}
	for i, name := range columns {
		p.printf("%-*s  %s\n", most, name, p.cellOf(row[i]).text)
	}
}

// grid is the cells of a table. Its first line has the names of the columns.
type grid [][]cell

// gap is between two columns.
const gap = "  "

// comfort is how narrow a column that can be wrapped becomes before another is left out; least is how
// narrow one becomes at all.
const (
	comfort = 12
	least   = 6
)

// fit returns the width of each column, so that a line has no more than width characters, if it can be. It
// removes columns of less where it must, and returns the names of those that had something in them.
func (g grid) fit(width int, less []string) (widths []int, left []string) {
	if natural := g.widths(0, nil); total(natural) <= width {
		return natural, nil
	}
	for _, name := range less {
		if at := g.column(name); at >= 0 && g.empty(at) {
			g.remove(at)
		}
	}
	if widths, ok := shrink(g.widths(0, nil), g.widths(comfort, atSpaces), width); ok {
		return widths, nil
	}
	for {
		natural, wrapped := g.widths(0, nil), g.widths(comfort, atSigns)
		wrapped[0] = natural[0]
		if widths, ok := shrink(natural, wrapped, width); ok {
			return widths, left
		}
		at := -1
		for at < 0 && len(less) > 0 {
			at, less = g.column(less[0]), less[1:]
		}
		if at < 0 {
			break
		}
		left = append(left, g[0][at].text)
		g.remove(at)
	}
	widths, ok := shrink(g.widths(0, nil), g.widths(1, atSigns), width)
	if !ok {
		smallest := slices.Repeat([]int{least}, len(widths))
		for i := range smallest {
			if g.times(i) {
				smallest[i] = widths[i]
			}
		}
		widths, _ = shrink(widths, smallest, width)
	}
	return widths, left
}

// times reports whether a column has times, which nobody reads in two parts.
func (g grid) times(column int) bool {
	return !slices.ContainsFunc(g[1:], func(line []cell) bool {
		_, err := time.Parse(time.RFC3339, line[column].text)
		return err != nil && line[column].text != "-"
	})
}

// column is the index of the column of that name, or -1.
func (g grid) column(name string) int {
	return slices.IndexFunc(g[0], func(c cell) bool { return c.text == name })
}

func (g grid) empty(column int) bool {
	return !slices.ContainsFunc(g[1:], func(line []cell) bool { return line[column].text != "-" })
}

func (g grid) remove(column int) {
	for i := range g {
		g[i] = slices.Delete(g[i], column, column+1)
	}
}

// widths is what each column takes: its longest cell or, where cells may be wrapped to so many
// characters, the longest of their parts if that is longer.
func (g grid) widths(wrapped int, parts func(string) iter.Seq[string]) []int {
	widths := make([]int, len(g[0]))
	for _, line := range g {
		for i, c := range line {
			width := utf8.RuneCountInString(c.text)
			if wrapped > 0 {
				longest := wrapped
				for part := range parts(c.text) {
					longest = max(longest, utf8.RuneCountInString(part))
				}
				width = min(width, longest)
			}
			widths[i] = max(widths[i], width)
		}
	}
	return widths
}

// atSpaces are the words of a text.
func atSpaces(text string) iter.Seq[string] { return strings.FieldsSeq(text) }

// atSigns are the parts of a text that end at a space or behind a sign. A word with a digit is one part: it is an id
// or a number.
func atSigns(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for word := range strings.FieldsSeq(text) {
			for word != "" {
				end := strings.IndexFunc(word, unicode.IsPunct) + 1
				if end == 0 || strings.ContainsAny(word, "0123456789") {
					end = len(word)
				}
				if !yield(word[:end]) {
					return
				}
				word = word[end:]
			}
		}
	}
}

func total(widths []int) (sum int) {
	for _, width := range widths {
		sum += width + len(gap)
	}
	return sum - len(gap)
}

// shrink takes from the widest column, again and again, down to the smallest widths. It reports whether the
// line fits then.
func shrink(widths, smallest []int, width int) ([]int, bool) {
	for total(widths) > width {
		widest := -1
		for i := range widths {
			if widths[i] > smallest[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

// wrapped formats a line of a table, in as many lines as its longest cell needs.
func (p *program) wrapped(line []cell, widths []int) string {
	parts, most := make([][]string, len(line)), 1
	for i, c := range line {
		parts[i] = wrap(c.text, widths[i])
		most = max(most, len(parts[i]))
	}
	var out strings.Builder
	for n := range most {
		pad := 0
		for i, c := range line {
			if n < len(parts[i]) && parts[i][n] != "" {
				text := parts[i][n]
				_, _ = out.WriteString(strings.Repeat(" ", pad))
				pad = -utf8.RuneCountInString(text)
				if c.alert {
					text = p.alert(text)
				}
				_, _ = out.WriteString(text)
			}
			pad += widths[i] + len(gap)
		}
		_ = out.WriteByte('\n')
	}
	return out.String()
}

// wrap breaks a text at a space or, in a word that is too long, behind a sign, or anywhere.
func wrap(text string, width int) (lines []string) {
	rest := []rune(text)
	for len(rest) > width {
		at := width
		for i := width; i > 0; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
			if at == width && i < width && i > 1 && unicode.IsPunct(rest[i-1]) {
				at = i
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}
