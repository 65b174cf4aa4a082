package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
)

// fields prints an answer, member by member, and the lists in it as tables; as CSV it is the first of these, where there
// is one.
func (p *program) fields(columns []console.Column, answer any) {
	first := slices.IndexFunc(columns, func(c console.Column) bool { return c.Inside != nil })
	if p.asCSV && first >= 0 {
		p.items(columns[first].Inside, columns[first].Value(answer))
		return
	}
	var names, cells []string
	for _, c := range columns {
		if c.Inside == nil && !c.Block {
			names, cells = append(names, strings.ToUpper(c.Label)), append(cells, c.Text(answer))
		}
	}
	p.record(names, cells)
	for _, c := range columns {
		if text := c.Text(answer); c.Block && text != "" {
			p.printf("%s\n", strings.ToUpper(c.Label))
			for line := range strings.Lines(text) {
				p.printf("%s\n", own(audit.EscapeJSON(strings.TrimRight(line, "\r\n"))))
			}
		}
	}
	for _, c := range columns {
		if list := c.Value(answer); c.Inside != nil && list.IsValid() && list.Len() > 0 {
			p.printf("\n")
			p.notes(p.items(c.Inside, list))
		}
	}
	p.notes(console.Notes(answer))
}

// items prints a list, where there is anything in it, and returns what its items say beside their columns.
func (p *program) items(columns []console.Column, items reflect.Value) (notes []string) {
	var rows [][]string
	alerts := map[int]bool{}
	if columns = slices.Clone(columns); p.asCSV {
		for i, c := range columns { // a spreadsheet has room for all that a cell can have
			columns[i].Detail = c.Inside != nil || c.Block
		}
	}
	for i := 0; items.IsValid() && i < items.Len(); i++ {
		item := items.Index(i).Interface()
		if console.Blocks(columns) {
			p.fields(columns, item)
			continue
		}
		alerts[i] = console.Alerts(item)
		rows, notes = append(rows, p.cells(columns, item)), append(notes, console.Notes(item)...)
	}
	columns = slices.DeleteFunc(columns, func(c console.Column) bool { return c.Detail })
	for i, c := range columns {
		if c.ID && !p.asCSV && !p.wide {
			shorten(rows, i)
		}
	}
	if len(rows) > 0 {
		names, less := heads(columns)
		p.table(names, rows, alerts, less...)
	}
	return notes
}

// shortest is how much of an id a table shows at least.
const shortest = 12

// shorten cuts the ids of a column to what tells them apart, at least shortest characters.
func shorten(rows [][]string, column int) {
	var ids []string
	for _, row := range rows {
		ids = append(ids, row[column])
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	length := shortest
	for i := range len(ids) - 1 {
		for length < len(ids[i]) && strings.HasPrefix(ids[i+1], ids[i][:length]) {
			length++
		}
	}
	for _, row := range rows {
		row[column] = row[column][:min(length, len(row[column]))]
	}
}

// commandOf is the command that asks for an address of the API; empty: none does.
func (p *program) commandOf(address string) string {
	o, in, _ := p.known.At(address)
	command := o.Name
	for _, f := range o.Fields {
		if f.In == console.InPath {
			command += " " + quoted(in.Path[f.Name])
		}
	}
	for _, f := range o.Fields {
		if value := in.Query.Get(f.Name); value != f.Standard && in.Query.Has(f.Name) {
			command += " --" + flagOf(f) + " " + quoted(value)
		}
	}
	return command
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-/%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// heads are the names of a table's columns, and those that are left out first.
func heads(columns []console.Column) (names, less []string) {
	for _, c := range columns {
		if !c.Detail {
			names = append(names, strings.ToUpper(c.Label))
		}
		if c.Less {
			less = append(less, strings.ToUpper(c.Label))
		}
	}
	return names, less
}

func (p *program) cells(columns []console.Column, item any) (cells []string) {
	for _, c := range columns {
		if text := c.Text(item); c.Address {
			cells = append(cells, p.commandOf(text))
		} else if !c.Detail {
			cells = append(cells, text)
		}
	}
	return cells
}

func (p *program) notes(all []string) {
	for _, note := range all {
		p.printf("%s\n", note)
	}
}

type screen struct {
	// width is how many characters a line may have; 0: usualWidth.
	width    int
	colour   bool
	terminal bool
}

const usualWidth = 100

func screenOf(out io.Writer, getenv func(string) string) screen {
	s := screen{width: usualWidth}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.terminal, s.colour = true, getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			s.width = width
		}
	}
	if width, err := strconv.Atoi(getenv("COLUMNS")); err == nil && width > 0 {
		s.width = width
	}
	return s
}

// cellOf is a cell as a terminal may have it: what is empty is a dash.
func cellOf(text string) string { return cmp.Or(audit.Escape(text), "-") }

// table prints rows in columns below their names, those of alerts so that they stand out. It prints nothing with --json.
// Where a line is wider than the screen, the columns of less are left out, the first of them first; the last line says
// which. With --wide none is, and never the first.
func (p *program) table(columns []string, rows [][]string, alerts map[int]bool, less ...string) {
	if p.asJSON {
		return
	}
	if p.asCSV {
		p.csv(columns, rows...)
		return
	}
	lines := make([][]string, 0, 1+len(rows))
	for _, row := range slices.Concat([][]string{columns}, rows) {
		cells := make([]string, len(row))
		for i, text := range row {
			cells[i] = cellOf(text)
		}
		lines = append(lines, cells)
	}
	var left []string
	for _, name := range less {
		at := slices.Index(lines[0], name)
		if p.wide || at <= 0 || wide(lines) <= cmp.Or(p.screen.width, usualWidth) {
			continue
		}
		if slices.ContainsFunc(lines[1:], func(cells []string) bool { return cells[at] != "-" }) {
			left = append(left, name)
		}
		for n := range lines {
			lines[n] = slices.Delete(lines[n], at, at+1)
		}
	}
	var out bytes.Buffer
	columned := tabwriter.NewWriter(&out, 0, 0, len(gap), ' ', 0)
	for _, cells := range lines {
		_, _ = io.WriteString(columned, strings.Join(cells, "\t")+"\n") // a buffer takes everything
	}
	_ = columned.Flush()
	n := -1 // the names of the columns
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSuffix(line, "\n"); alerts[n] && p.screen.colour {
			line = "\x1b[1;31m" + line + "\x1b[0m" // bold and red
		}
		_, _ = io.WriteString(p.stdout, line+"\n") // a closed terminal is no failure of the command
		n++
	}
	if len(left) > 0 {
		p.printf("Left out: %s. See all with --wide.\n", strings.Join(left, ", "))
	}
}

const gap = "  "

func wide(lines [][]string) (width int) {
	for i := range lines[0] {
		longest := 0
		for _, cells := range lines {
			longest = max(longest, utf8.RuneCountInString(cells[i]))
		}
		width += longest + len(gap)
	}
	return width - len(gap)
}

// outputs are the values of the flag output.
var outputs = []string{"table", "json", "csv"}

type outputFlag struct{ p *program }

func (o outputFlag) String() string { return outputs[0] }

func (o outputFlag) Type() string { return strings.Join(outputs, "|") }

func (o outputFlag) Set(text string) error {
	if !slices.Contains(outputs, text) {
		return errors.New("it is " + strings.Join(outputs, ", "))
	}
	o.p.asJSON, o.p.asCSV = text == "json", text == "csv"
	return nil
}

// csv prints rows below their names, each cell as a spreadsheet takes it without reading a formula.
func (p *program) csv(columns []string, rows ...[]string) {
	out := csv.NewWriter(p.stdout)
	for _, cells := range append([][]string{columns}, rows...) {
		harmless := make([]string, len(cells))
		for i, cell := range cells {
			_, notNumber := strconv.ParseFloat(cell, 64)
			if harmless[i] = audit.Escape(cell); cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) && notNumber != nil {
				harmless[i] = "'" + harmless[i]
			}
		}
		_ = out.Write(harmless) // a closed terminal is no failure of the command
	}
	out.Flush()
}

func (p *program) record(columns, row []string) {
	if p.asCSV {
		p.csv(columns, row)
		return
	}
	most := 0
	for _, name := range columns {
		most = max(most, utf8.RuneCountInString(name))
	}
	for i, name := range columns {
		p.printf("%-*s  %s\n", most, name, cellOf(row[i]))
	}
}
