// Package screen lays out rows of texts as columns on a terminal, or as CSV. It owns the width of lines and
// the escaping for terminals, spreadsheets and shells. It does not know what the rows mean.
package screen

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"billhook/internal/platform/audit"
)

// Width returns the width of a line in characters: from COLUMNS, else from the terminal, else 100.
func Width(out io.Writer, getenv func(string) string) int {
	if width, err := strconv.Atoi(getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 100
}

// Column says how a table saves width. ID: values are cut to unique prefixes. Less: it may be left out.
type Column struct{ ID, Less bool }

// Table lays out rows in lines of at most width characters; 0: no limit. The first row names the columns. It
// shortens ids. While a line is still too wide, it leaves out columns with Less, the leftmost first, but
// never the first column, and returns the names of those that were not empty.
func Table(columns []Column, rows [][]string, width int) (text string, left []string) {
	for i, c := range columns {
		if c.ID && width > 0 {
			shorten(rows[1:], i)
		}
	}
	for text = Columns(rows); width > 0 && widest(text) > width; text = Columns(rows) {
		at := 1 + slices.IndexFunc(columns[1:], func(c Column) bool { return c.Less })
		if at == 0 {
			break
		}
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[at] != "" }) {
			left = append(left, rows[0][at])
		}
		columns = slices.Delete(slices.Clone(columns), at, at+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
	return text, left
}

// Columns lays out rows, with cells escaped for a terminal; a dash replaces an empty cell.
func Columns(rows [][]string) string {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, text := range row {
			cells[i] = cmp.Or(audit.Escape(text), "-")
		}
		_, _ = io.WriteString(columns, strings.Join(cells, "\t")+"\n") // a buffer returns no errors
	}
	_ = columns.Flush()
	return out.String()
}

func widest(text string) (width int) {
	for line := range strings.Lines(text) {
		width = max(width, utf8.RuneCountInString(line)-1)
	}
	return width
}

// Shortest is the least number of characters to which a table cuts an id.
const Shortest = 12

func shorten(rows [][]string, column int) {
	var ids []string
	for _, row := range rows {
		ids = append(ids, row[column])
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	length := Shortest
	for i := range len(ids) - 1 {
		for length < len(ids[i]) && strings.HasPrefix(ids[i+1], ids[i][:length]) {
			length++
		}
	}
	for _, row := range rows {
		row[column] = row[column][:min(length, len(row[column]))]
	}
}

// CSV writes rows, with cells escaped so that a spreadsheet does not take them for formulas.
func CSV(to io.Writer, rows [][]string) {
	out := csv.NewWriter(to)
	for _, cells := range rows {
		harmless := make([]string, len(cells))
		for i, cell := range cells {
			_, notNumber := strconv.ParseFloat(cell, 64)
			harmless[i] = audit.Escape(cell)
			if notNumber != nil && strings.IndexAny(cell, "=+-@") == 0 {
				harmless[i] = "'" + harmless[i]
			}
		}
		_ = out.Write(harmless) // a closed terminal is no failure; a file reports its first error itself
	}
	out.Flush()
}

// Quoted quotes a word for a shell.
func Quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-/%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
