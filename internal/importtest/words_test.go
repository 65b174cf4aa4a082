package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// dialect are words that were this project's own, in names, comments and pages, each with the field's word.
var dialect = map[string]string{
	"door": "ingest, or webhook service", "calm": "no waiting messages", "teacher": "what it does", "desk": "what it does",
	"keeper": "what it stores", "rung": "error mapping", "ladder": "error mapping",
}

// onPages are of pages alone: code has the words in other senses, too.
var onPages = map[string]string{
	"told": "notified", "tells": "says, or notifies", "news": "an event, or a notification",
	"the letter": "the dead letter", "this letter": "this dead letter", "its turn": "the ordering check", "a turn": "the ordering check",
}

var (
	capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	letters = regexp.MustCompile(`[a-z]+`)
)

// wordsOf are the words of a text or a name, in small letters, with a space before and behind each.
func wordsOf(text string) string {
	text = strings.ToLower(capital.ReplaceAllString(text, "$1 $2"))
	return " " + strings.Join(letters.FindAllString(text, -1), " ") + " "
}

func TestNobodyHasToTranslateTheWords(t *testing.T) {
	t.Parallel()
	check := func(path, text string, refused map[string]string) {
		words := wordsOf(text)
		for word, better := range refused {
			if strings.Contains(words, " "+word+" ") || strings.Contains(words, " "+word+"s ") {
				require.Fail(t, "a word of our own", "%s says %s: say %s", path, word, better)
			}
		}
	}
	for document, text := range documents(t) {
		check(document, text, dialect)
		check(document, text, onPages)
	}
	seen, names := 0, map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".tf", ".yaml":
			if !strings.Contains(path, "testdata") {
				check(path, filetest.Read(t, path), dialect)
			}
		case ".go":
			file := filetest.Must(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution))(t)
			seen++
			if filepath.Base(path) != "words_test.go" {
				for _, comment := range file.Comments {
					check(path, comment.Text(), dialect)
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if name, ok := n.(*ast.Ident); ok && !names[name.Name] {
						names[name.Name] = true
						check(path, name.Name, dialect)
					}
					return true
				})
			}
		}
		return err
	}))
	require.Greater(t, seen, 300)
}
