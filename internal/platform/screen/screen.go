// Package screen lays out rows of texts for people: in columns on a terminal, or as CSV. It owns what fits a
// line, and what a terminal, a spreadsheet or a shell may have of a text. It refuses to know what the rows
// are about.
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

// Width is how many characters a line may have: what COLUMNS says, else the terminal, else 100.
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

// Column says how a table does without some of a column. ID: its values are cut to what tells them apart.
// Less: it is left out where there is no room.
type Column struct{ ID, Less bool }

// Table lays out rows, of which the first names the columns, in lines of a width; 0: of any. It shortens ids.
// Where a line is wider, it leaves out the columns that are needed less, the first of them first, and returns
// the names of those with something in them; never the first column.
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

// Columns lays out rows, each cell as a terminal may have it: what is empty is a dash.
func Columns(rows [][]string) string {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, text := range row {
			// a buffer takes everything
			_, _ = io.WriteString(columns, strings.Repeat("\t", min(i, 1))+cmp.Or(audit.Escape(text), "-"))
		}
		_, _ = io.WriteString(columns, "\n")
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

// Shortest is how much of an id a table shows at least.
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

// CSV writes rows, each cell as a spreadsheet takes it without reading a formula.
func CSV(to io.Writer, rows [][]string) {
	out := csv.NewWriter(to)
	for _, cells := range rows {
		harmless := make([]string, len(cells))
		for i, cell := range cells {
			_, notNumber := strconv.ParseFloat(cell, 64)
			if harmless[i] = audit.Escape(cell); cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) &&
				notNumber != nil {
				harmless[i] = "'" + harmless[i]
			}
		}
		_ = out.Write(harmless) // a closed terminal is no failure; a file keeps its first error
	}
	out.Flush()
}

// Quoted is a word as a shell takes it.
func Quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-/%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
