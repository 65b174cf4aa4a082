package main

import (
	"reflect"
	"slices"
	"strings"

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
	if len(rows) > 0 {
		names, less := heads(columns)
		p.table(names, rows, alerts, less...)
	}
	return notes
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
