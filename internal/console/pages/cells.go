package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"billhook/docs/reference"
	"billhook/internal/console"
)

// cell is a value on a page, with its label.
type cell struct {
	Label, Text, Href string
	// Amount: it is a number. Code: it is a code of the reference, and State: it has a colour. Block: it has
	// several lines. ID: people copy it, and seldom read it.
	Amount, Code, State, Block, ID bool
	Time                           time.Time
}

// Short is the text for a narrow column: the beginning of a long id that links to its page.
func (c cell) Short() string {
	if c.Href == "" || len(c.Text) <= maxShort {
		return c.Text
	}
	return c.Text[:maxWord-3] + "…"
}

// Word reports whether the text is one word that fits a column, and so is not broken.
func (c cell) Word() bool {
	return c.Time.IsZero() && len(c.Short()) <= maxWord && !strings.Contains(c.Text, " ")
}

const (
	maxShort = 40
	maxWord  = 20
	maxBlock = 12 << 10
)

func cellOf(c console.Column, of any, tenant string) cell {
	v := c.Value(of)
	made := cell{Label: c.Label, Text: c.Text(of), Block: c.Block, ID: ids.MatchString(c.Name)}
	if !v.IsValid() {
		return made
	}
	if over := len(made.Text) - maxBlock; c.Block && over > 0 {
		made.Text = fmt.Sprintf("%s\n… and %d more bytes: the command shows all", made.Text[:maxBlock], over)
	}
	made.Time, _ = v.Interface().(time.Time)
	_, worded := v.Interface().(fmt.Stringer)
	if made.Amount = v.CanInt() && !worded; made.Amount {
		made.Text = grouped(made.Text)
	}
	made.Code = c.Code && reference.Entries(made.Text) != nil
	made.State = made.Code && v.Type() != reflect.TypeFor[string]()
	if c.Link != "" && made.Text != "" {
		made.Href = linkTo(c.Link, tenant, console.Text(v), of)
	}
	return made
}

const looks = "/v1/ops/"

// linkTo returns the address for a link tag: the page of a noun's thing, the search, the address in a member,
// or a pattern with members in braces, such as usage/{subscription}/entries?meter={meter}.
func linkTo(link, tenant, id string, item any) string {
	path, query, _ := strings.Cut(link, "?")
	switch {
	case link == "search":
		path, query = "search", "q="+url.QueryEscape(id)
	case strings.HasPrefix(console.Member(item, link), looks):
		return "/ops/" + strings.TrimPrefix(console.Member(item, link), looks)
	case !strings.Contains(link, "{"):
		path += "/" + url.PathEscape(id)
	}
	member := func(escape func(string) string) func(string) string {
		return func(name string) string { return escape(console.Member(item, strings.Trim(name, "{}"))) }
	}
	path = braces.ReplaceAllStringFunc(path, member(url.PathEscape))
	query = braces.ReplaceAllStringFunc(query, member(url.QueryEscape))
	address := "/ops/" + strings.TrimSuffix(path+"?"+query, "?")
	if strings.Contains(link, "{tenant}") {
		return with(address, "tenant", console.Member(item, "tenant"))
	}
	return of(address, tenant)
}

var ids = regexp.MustCompile(`(^|_)(id|key|hash)$`)

var braces = regexp.MustCompile(`\{[a-z_]+\}`)

type grid struct {
	Title, Empty string
	// Choose: people choose rows, by the first column.
	Choose bool
	// Records are items with a block, which are not shown as rows.
	Records [][]cell
	Heads   []cell
	Rows    [][]cell
	Notes   []string
	Next    string
}

func gridOf(columns []console.Column, items reflect.Value, tenant string) (g grid) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c console.Column) bool {
		return c.Detail || c.Address
	})
	for _, c := range columns {
		g.Heads = append(g.Heads, cell{Label: c.Label})
	}
	for i := range items.Len() {
		item, row := items.Index(i).Interface(), []cell(nil)
		whose := cmp.Or(console.Member(item, "tenant"), tenant)
		for _, c := range columns {
			row = append(row, cellOf(c, item, whose))
		}
		if console.Blocks(columns) {
			g.Records = append(g.Records, slices.DeleteFunc(row, func(c cell) bool { return c.Text == "" }))
			continue
		}
		g.Rows = append(g.Rows, row)
		g.Notes = append(g.Notes, console.Notes(item)...)
		for at := range row {
			g.Heads[at].Amount = g.Heads[at].Amount || row[at].Amount
		}
	}
	return g
}
