package main

import (
	"context"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"billhook/internal/compose/operations"
	"billhook/internal/console"

	"github.com/stretchr/testify/require"
)

// printed is the job log's table on a screen of that width.
func printed(width int, wide bool) string {
	var out strings.Builder
	p := &program{stdout: &out, screen: screen{width: width}, wide: wide}
	p.table([]string{"CREATED", "QUEUE", "EVENT", "TYPE", "ATTEMPTS", "RESULT", "WHY"}, [][]string{
		{"2026-11-22T12:05:04Z", "pay-refund-initiation", "7286d212-2d1c-541f-8d0d-f444efc5ed70", "refund", "1", "refunded", ""},
		{"2026-11-22T12:05:03Z", "orders-process", "order-7", "order.payment_confirmed", "2", "größer", ""},
	}, nil, "WHY", "ATTEMPTS", "TYPE")
	return out.String()
}

func TestTableFitsTheScreenByLeavingColumnsOut(t *testing.T) {
	t.Parallel()
	require.Equal(t, `CREATED               QUEUE                  EVENT                                 RESULT
2026-11-22T12:05:04Z  pay-refund-initiation  7286d212-2d1c-541f-8d0d-f444efc5ed70  refunded
2026-11-22T12:05:03Z  orders-process         order-7                               größer
Left out: ATTEMPTS, TYPE. See all with --wide.
`, printed(100, false))
	for line := range strings.Lines(printed(120, false)) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 121)
	}
	require.Contains(t, printed(120, false), "Left out: ATTEMPTS.", "no more than it must")
	require.Contains(t, printed(200, false), "RESULT    WHY\n", "nothing, where there is room")
	require.Equal(t, printed(200, false), printed(80, true), "and nothing with --wide")
}

func TestLineOfAnAlertStandsOutOnATerminalAlone(t *testing.T) {
	t.Parallel()
	show := func(colour bool) string {
		var out strings.Builder
		p := &program{stdout: &out, screen: screen{width: 40, colour: colour}}
		p.table([]string{"QUEUE", "STATE", "ALIAS"}, [][]string{{"orders", "ALERT", "o"}, {"\x1b[1;31mfake", "on", "p"}}, map[int]bool{0: true})
		return out.String()
	}
	require.Equal(t, "QUEUE           STATE  ALIAS\norders          ALERT  o\n\\x1b[1;31mfake  on     p\n", show(false))
	require.Equal(t, "QUEUE           STATE  ALIAS\n\x1b[1;31morders          ALERT  o\x1b[0m\n\\x1b[1;31mfake  on     p\n", show(true))
}

func TestCellOfATableControlsNoTerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &program{stdout: &out}
	p.table([]string{"WHO", "WHY"}, [][]string{{"ada", "lost\x1b[2J\nand\tfound\v"}, {"", "\u202egrößer"}}, nil)
	require.Equal(t, "WHO  WHY\nada  lost\\x1b[2J\\nand\\tfound\\v\n-    \\u202egrößer\n", out.String())
}

func TestWidthIsThatOfCOLUMNSElse100WhereNoTerminalIs(t *testing.T) {
	t.Parallel()
	for columns, want := range map[string]int{"": 100, "80": 80, "0": 100, "many": 100} {
		require.Equal(t, screen{width: want}, screenOf(io.Discard, func(name string) string { return map[string]string{"COLUMNS": columns}[name] }), columns)
	}
}

func TestAListIsPrintedAsItIsAskedForAndAgainAndAgain(t *testing.T) {
	t.Parallel()
	server := listen(t, answering(`{"items":[{"product_id":"=1+1","tenant":"default","available":-5}],"next":""}`))
	for as, want := range map[string]string{
		"-o table": "=1+1 ", "-o json": `"product_id": "=1+1"`, "--json": `"product_id": "=1+1"`,
		"-o csv": "'=1+1,-5,",
	} {
		play(t, nil, server, []step{{line: "stock ls " + as, want: want}})
	}
	play(t, nil, server, []step{{line: "stock ls -o yaml", fails: "--output"}})
	stock := listen(t, answering(`{"product_id":"hat","tenant":"default","available":7}`))
	play(t, nil, stock, []step{
		{line: "stock set hat --available 7 --why counted -o csv", typed: "hat\n", fails: "--yes"},
		{line: "stock set hat --available 7 --why counted -o csv --yes", want: "\nPRODUCT,AVAILABLE,RESERVED,SOLD\nhat,7,0,0\n"},
	})
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	p, err := newProgram(func(string) string { return "" }, &out)
	require.NoError(t, err)
	waited := 0
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, 5*time.Second, every)
		if waited++; waited == 3 {
			stop()
			return nil
		}
		tick := make(chan time.Time, 1)
		tick <- time.Time{}
		return tick
	}
	require.NoError(t, p.execute(ctx, []string{"stock", "ls", "--watch=5s", "--server", server}))
	require.Equal(t, 3, strings.Count(out.String(), "=1+1"))
}

// A table of any list leaves columns out where there is no room, and of the first one nothing but the end of an id.
func TestNothingOfTheFirstColumnIsLost(t *testing.T) {
	t.Parallel()
	for _, o := range operations.All(operations.Apps{}).Operations {
		columns := slices.DeleteFunc(slices.Clone(o.Columns), func(c console.Column) bool { return c.Detail })
		if !o.List || len(columns) < 2 || console.Blocks(columns) {
			continue
		}
		const first = "its-first-column-is-one-of-forty-letters"
		item := reflect.ValueOf(o.Item()).Elem()
		fill(item, first)
		list := reflect.MakeSlice(reflect.SliceOf(item.Type()), 1, 1)
		list.Index(0).Set(item)
		var out strings.Builder
		p, err := newProgram(func(string) string { return "" }, &out)
		require.NoError(t, err)
		p.commands()
		p.items(o.Columns, list)
		lines := strings.Split(out.String(), "\n")
		want := columns[0].Text(item.Interface())
		if columns[0].ID {
			want = want[:shortest]
		}
		require.True(t, strings.HasPrefix(lines[0], strings.ToUpper(columns[0].Label)), "%s: %s", o.Name, lines[0])
		require.True(t, strings.HasPrefix(lines[1], cellOf(want)+" ") || lines[1] == cellOf(want), "%s: %s", o.Name, lines[1])
	}
}
