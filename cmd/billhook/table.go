package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
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
// which. With --wide none is.
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
		if p.wide || at < 0 || wide(lines) <= cmp.Or(p.screen.width, usualWidth) {
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
			if harmless[i] = audit.Escape(cell); cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) && !numeric(cell) {
				harmless[i] = "'" + harmless[i]
			}
		}
		_ = out.Write(harmless) // a closed terminal is no failure of the command
	}
	out.Flush()
}

func numeric(cell string) bool {
	_, err := strconv.ParseFloat(cell, 64)
	return err == nil
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
