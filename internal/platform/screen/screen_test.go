package screen_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/screen"
)

func TestWidthWithoutATerminalIsThatOfCOLUMNSElse100(t *testing.T) {
	t.Parallel()
	for columns, want := range map[string]int{"": 100, "80": 80, "0": 100, "many": 100} {
		environment := map[string]string{"COLUMNS": columns}
		width := screen.Width(io.Discard, func(name string) string { return environment[name] })
		require.Equal(t, want, width, columns)
	}
}

func TestAnIDIsCutToAUniquePrefix(t *testing.T) {
	t.Parallel()
	for ids, want := range map[string]string{
		"0123456789abcdef-a 0123456789abcdef-b short": "0123456789abcdef-a 0123456789abcdef-b short",
		"0123456789abcdef 99":                         "0123456789ab 99",
	} {
		rows := [][]string{{"ID"}}
		for id := range strings.FieldsSeq(ids) {
			rows = append(rows, []string{id})
		}
		text, left := screen.Table([]screen.Column{{ID: true}}, rows, 100)
		require.Equal(t, "ID "+want, strings.Join(strings.Fields(text), " "))
		require.Empty(t, left)
	}
}

func TestAShellReadsAQuotedIDAsOneWord(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"e-1.a:b": "e-1.a:b", "a|b": "'a|b'", "a'; rm": `'a'\''; rm'`, "x~y": "'x~y'", "": "",
	} {
		require.Equal(t, want, screen.Quoted(id))
	}
}
