package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// printed is the job log's table on a screen of that width.
func printed(width int, wide bool) string {
	var out strings.Builder
	p := &program{stdout: &out, screen: screen{width: width}, wide: wide}
	p.table([]string{"CREATED", "QUEUE", "EVENT", "TYPE", "ATTEMPTS", "RESULT", "WHY"}, [][]string{
		{"2026-11-22T12:05:04Z", "pay-refund-initiation", "7286d212-2d1c-541f-8d0d-f444efc5ed70", "refund", "1", "refunded", ""},
		{"2026-11-22T12:05:03Z", "orders-process", "order-7", "order.payment_confirmed", "2", "payment_initiated", ""},
	}, "WHY", "ATTEMPTS", "TYPE")
	return out.String()
}

func TestATableFitsTheScreenByWrappingNamesThenByLeavingColumnsOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		width int
		wide  bool
		want  string
	}{
		"80": {80, false, `
CREATED               QUEUE       EVENT                                RESULT
2026-11-22T12:05:04Z  pay-        7286d212-2d1c-541f-8d0d-             refunded
                      refund-     f444efc5ed70
                      initiation
2026-11-22T12:05:03Z  orders-     order-7                              payment_
                      process                                          initiated
Left out: ATTEMPTS, TYPE. See all with --wide.
`},
		"100": {100, false, `
CREATED               QUEUE         EVENT                                 TYPE          RESULT
2026-11-22T12:05:04Z  pay-refund-   7286d212-2d1c-541f-8d0d-f444efc5ed70  refund        refunded
                      initiation
2026-11-22T12:05:03Z  orders-       order-7                               order.        payment_
                      process                                             payment_      initiated
                                                                          confirmed
Left out: ATTEMPTS. See all with --wide.
`},
		"200": {200, false, `
CREATED               QUEUE                  EVENT                                 TYPE                     ATTEMPTS  RESULT             WHY
2026-11-22T12:05:04Z  pay-refund-initiation  7286d212-2d1c-541f-8d0d-f444efc5ed70  refund                   1         refunded           -
2026-11-22T12:05:03Z  orders-process         order-7                               order.payment_confirmed  2         payment_initiated  -
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, strings.TrimPrefix(test.want, "\n"), printed(test.width, test.wide))
		})
	}
	require.Equal(t, printed(200, false), printed(80, true), "--wide is as wide as what is in it")
}

func TestNoLineIsWiderThanTheScreenAndNoCellIsCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zäß0-9 ._:~|/-]{0,60}`)
		columns := rapid.IntRange(1, 6).Draw(t, "columns")
		width := rapid.IntRange(columns*(least+len(gap)), 200).Draw(t, "width")
		names := make([]string, columns)
		for i := range names {
			names[i] = fmt.Sprintf("C%d", i)
		}
		given := rapid.SliceOfN(rapid.SliceOfN(text, columns, columns), 1, 3).Draw(t, "rows")
		var out strings.Builder
		p := &program{stdout: &out, screen: screen{width: width}}
		p.table(names, given)
		for line := range strings.Lines(out.String()) {
			if length := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); length > width {
				t.Fatalf("%d characters on %d:\n%s", length, width, out.String())
			}
		}
		for _, row := range given {
			for _, cell := range row {
				parts := wrap(cell, max(1, width/columns))
				if got := strings.Join(strings.Fields(strings.Join(parts, "")), ""); got != strings.Join(strings.Fields(cell), "") {
					t.Fatalf("%q became %q", cell, parts)
				}
			}
		}
	})
}

func TestAnAlertStandsOutOnATerminalAlone(t *testing.T) {
	t.Parallel()
	show := func(colour bool) string {
		var out strings.Builder
		p := &program{stdout: &out, screen: screen{width: 40, colour: colour}}
		p.table([]string{"QUEUE", "STATE", "ALIAS"}, [][]string{{"orders", p.alert("ALERT"), "o"}, {"\x1b[1;31mfake", "on", "p"}})
		return out.String()
	}
	require.Equal(t, "QUEUE           STATE  ALIAS\norders          ALERT  o\n\\x1b[1;31mfake  on     p\n", show(false))
	require.Equal(t, "QUEUE           STATE  ALIAS\norders          \x1b[1;31mALERT\x1b[0m  o\n\\x1b[1;31mfake  on     p\n", show(true))
}

func TestTheWidthIsThatOfCOLUMNSElse100WhereNoTerminalIs(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	for columns, want := range map[string]int{"": 100, "80": 80, "0": 100, "-3": 100, "many": 100} {
		require.Equal(t, screen{width: want}, screenOf(file, func(name string) string { return map[string]string{"COLUMNS": columns}[name] }), columns)
	}
}
