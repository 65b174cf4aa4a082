package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"billhook/docs/reference"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/screen"
)

// The values of the flag output.
const (
	asTable = "table"
	asJSON  = "json"
	asCSV   = "csv"
)

var outputs = []string{asTable, asJSON, asCSV}

const reasonsPage = "docs/reference/reasons.md"

// laidOut is a text of several lines that is escaped already.
type laidOut string

// printf prints text for a person; with --json or -o csv it prints nothing. It escapes the arguments, which
// others may have written, so that none can move the cursor or begin a line.
func (p *program) printf(format string, args ...any) {
	if p.output != asTable {
		return
	}
	for i, arg := range args {
		switch arg.(type) {
		case int, int64, uint64, laidOut:
		default:
			args[i] = audit.Escape(fmt.Sprint(arg))
		}
	}
	_, _ = fmt.Fprintf(p.stdout, format, args...) // a closed terminal is no failure of the command
}

// warn prints something besides the answer: with --json or -o csv on standard error, outside the document.
func (p *program) warn(format string, args ...any) {
	to := p.stdout
	if p.output != asTable {
		to = os.Stderr
	}
	_, _ = fmt.Fprintln(to, audit.Escape(fmt.Sprintf(format, args...))) // as in printf
}

func (p *program) notes(all []string) {
	for _, note := range all {
		p.printf("%s\n", note)
		p.explained = p.explained || strings.Contains(note, reasonsPage) // then the program does not repeat it
	}
}

// printJSON prints v as one escaped JSON document. It prints nothing without --json.
func (p *program) printJSON(v any) error {
	if p.output != asJSON {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, _ = fmt.Fprintln(p.stdout, audit.EscapeLines(string(text))) // as in printf
	return nil
}

// fields prints the members of an answer, and the lists in it as tables; as CSV, only the first list.
func (p *program) fields(columns []console.Column, answer any) {
	first := slices.IndexFunc(columns, func(c console.Column) bool { return c.Inside != nil })
	if p.output == asCSV && first >= 0 {
		p.items(columns[first].Inside, columns[first].Value(answer))
		return
	}
	several := func(c console.Column) bool { return c.Inside != nil || c.Block }
	single := slices.DeleteFunc(slices.Clone(columns), several)
	names, cells := headings(single), p.cells(single, answer)
	if p.output == asCSV {
		if len(names) > 0 {
			screen.CSV(p.stdout, [][]string{names, cells})
		}
		return
	}
	var record [][]string
	for i := range names {
		record = append(record, []string{names[i], cells[i]})
	}
	p.printf("%s", laidOut(screen.Columns(record)))
	for _, c := range columns {
		if text := strings.TrimSuffix(c.Text(answer), "\n"); c.Block && text != "" {
			p.printf("%s\n%s\n", strings.ToUpper(c.Label), laidOut(audit.EscapeLines(text)))
		}
	}
	for _, c := range columns {
		if list := c.Value(answer); c.Inside != nil && list.IsValid() && list.Len() > 0 {
			if len(record) > 0 {
				p.printf("\n")
			}
			p.items(c.Inside, list)
		}
	}
	p.notes(console.Notes(answer))
}

// items prints a list, unless it is empty, and the notes of its items.
func (p *program) items(columns []console.Column, items reflect.Value) {
	if console.Blocks(columns) {
		for i := range items.Len() {
			p.fields(columns, items.Index(i).Interface())
		}
		return
	}
	rows, notes := p.rows(columns, items)
	switch {
	case len(rows) == 1 || p.output == asJSON:
	case p.output == asCSV:
		screen.CSV(p.stdout, rows)
	default:
		p.table(p.tabled(columns), rows)
	}
	p.notes(notes)
}

// rows returns the headings and the cells of a list, and the notes of its items. As CSV, an item that has a
// brief list gets a row for each item of that list.
func (p *program) rows(columns []console.Column, items reflect.Value) (rows [][]string, notes []string) {
	shown, inside := p.tabled(columns), console.Column{}
	for _, c := range columns {
		if p.output == asCSV && c.Inside != nil && !c.Detail {
			inside = c
		}
	}
	rows = [][]string{slices.Concat(headings(shown), headings(inside.Inside))}
	for i := 0; items.IsValid() && i < items.Len(); i++ {
		item := items.Index(i).Interface()
		cells := p.cells(shown, item)
		notes = append(notes, console.Notes(item)...)
		if inside.Inside == nil {
			rows = append(rows, cells)
			continue
		}
		for j, list := 0, inside.Value(item); j < list.Len(); j++ {
			rows = append(rows, slices.Concat(cells, p.cells(inside.Inside, list.Index(j).Interface())))
		}
	}
	return rows, notes
}

// tabled returns the columns of a table; as CSV, all columns that fit a cell.
func (p *program) tabled(columns []console.Column) []console.Column {
	return slices.DeleteFunc(slices.Clone(columns), func(c console.Column) bool {
		return p.output == asCSV && (c.Inside != nil || c.Block) || p.output != asCSV && c.Detail
	})
}

func headings(columns []console.Column) (names []string) {
	for _, c := range columns {
		names = append(names, strings.ToUpper(c.Label))
	}
	return names
}

func (p *program) cells(columns []console.Column, item any) (cells []string) {
	for _, c := range columns {
		text := c.Text(item)
		p.codes = p.codes || c.Code && reference.Entries(text) != nil
		if c.Address {
			text = p.commandOf(text)
		}
		cells = append(cells, text)
	}
	return cells
}

// table prints rows below their headings, and says which columns do not fit; with --wide all of them do.
func (p *program) table(columns []console.Column, rows [][]string) {
	shown := []screen.Column{}
	for _, c := range columns {
		shown = append(shown, screen.Column{ID: c.ID, Less: c.Less})
	}
	text, left := screen.Table(shown, rows, p.width)
	p.printf("%s", laidOut(text))
	if len(left) > 0 {
		p.printf("Left out: %s. See all with --wide.\n", strings.Join(left, ", "))
	}
}

// commandOf returns the command that calls an address of the API; empty: there is none.
func (p *program) commandOf(address string) string {
	o, in, _ := known().At(address)
	command, flags := o.Name, ""
	for _, f := range o.Fields {
		if value := in.Query.Get(f.Name); f.In == console.InPath {
			command += " " + screen.Quoted(in.Path[f.Name])
		} else if value != f.Standard && in.Query.Has(f.Name) {
			flags += " --" + flagOf(f) + " " + screen.Quoted(value)
		}
	}
	return command + flags
}

// write lets do print into a file, which is written whole or not at all; without a name, to the terminal.
func (p *program) write(file string, do func() error) error {
	if file == "" {
		return do()
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".billhook-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	terminal, text := p.stdout, bufio.NewWriter(part) // it keeps the first error
	p.stdout = text
	err = errors.Join(do(), text.Flush(), part.Sync(), part.Close())
	if p.stdout = terminal; err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}

// confirm asks the person to type word. Any other input means no.
func (p *program) confirm(yes bool, word, do string) error {
	if yes {
		return nil
	}
	if p.output != asTable {
		return usageError("--yes: with --json or -o csv nobody can be asked, so give it too")
	}
	p.printf("Type %s to %s: ", word, do)
	line, err := bufio.NewReader(p.root.InOrStdin()).ReadString('\n')
	switch {
	case strings.TrimSpace(line) == word:
		return nil
	case err != nil && line == "": // the end of the input means no
		return errors.New("nothing was changed: nobody has answered; --yes does it without asking")
	default:
		return errors.New("nothing was changed")
	}
}

// show prints an answer by its columns, or as JSON. It returns the answer's failure.
func (p *program) show(columns []console.Column, answer any) error {
	p.fields(columns, answer)
	return errors.Join(p.printJSON(answer), console.Failure(answer))
}
