package reference_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// source is the program's own code: files by their names, and constants by package and name.
type source struct {
	texts  map[string]string
	files  map[string]*ast.File
	values map[string]ast.Expr
}

func readSource(t *testing.T) source {
	t.Helper()
	s := source{files: map[string]*ast.File{}, values: map[string]ast.Expr{}}
	s.texts = filetest.Tree(t, filepath.Join("..", ".."), func(path string) bool {
		return (strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "internal/")) && filetest.IsSource(path)
	})
	for name, text := range s.texts {
		s.files[name] = filetest.Must(parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments))(t)
	}
	s.each(func(folder string, node ast.Node) {
		if value, ok := node.(*ast.ValueSpec); ok && len(value.Names) == len(value.Values) {
			for i, name := range value.Names {
				s.values[path.Base(folder)+"."+name.Name] = value.Values[i]
			}
		}
	})
	return s
}

// each visits all nodes, file by file.
func (s source) each(visit func(folder string, node ast.Node)) {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		ast.Inspect(s.files[name], func(node ast.Node) bool {
			visit(path.Dir(name), node)
			return true
		})
	}
}

// nameOf is a name with its package, such as console.Refuse.
func nameOf(folder string, of ast.Expr) string {
	switch named := of.(type) {
	case *ast.Ident:
		return path.Base(folder) + "." + named.Name
	case *ast.SelectorExpr:
		if from, ok := named.X.(*ast.Ident); ok {
			return from.Name + "." + named.Sel.Name
		}
	}
	return "."
}

// text is that of an expression of literals and constants; any other part of it is three dots.
func (s source) text(folder string, of ast.Expr) string {
	switch e := of.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return s.text(folder, e.X) + s.text(folder, e.Y)
	case *ast.CallExpr:
		if nameOf(folder, e.Fun) == "fmt.Sprintf" {
			return formatted.ReplaceAllString(s.text(folder, e.Args[0]), "…")
		}
	case *ast.Ident, *ast.SelectorExpr:
		if value := s.values[nameOf(folder, of)]; value != nil {
			return s.text(folder, value)
		}
	}
	return "…"
}

var formatted = regexp.MustCompile(`%[a-z]`)

// reasons are those that errors are marked with.
func (s source) reasons() map[string]bool {
	found := map[string]bool{}
	for _, text := range s.texts {
		for _, reason := range marked.FindAllStringSubmatch(text, -1) {
			found[reason[1]] = true
		}
	}
	return found
}

// marked is what gives an error its reason: a function of internal/retry, a verdict, or an order's answer.
var marked = regexp.MustCompile(
	`(?:\b(?:retry\.)?(?:Permanent|Unreadable|Conflicting|Transient|Down|Outage|Missing|Busy|` +
		`Early|BadRequest)\(|\bReason: +|, (?:missing|illegal), )"([a-z0-9_]+)"`)

// refusals are the codes of the problems that the API and the pages answer with, with what each says.
func (s source) refusals() map[int]map[string][]string {
	found := map[int]map[string][]string{}
	s.each(func(folder string, node ast.Node) {
		status, code, detail := ast.Expr(nil), ast.Expr(nil), ast.Expr(nil)
		switch n := node.(type) {
		case *ast.CallExpr:
			if strings.HasSuffix(nameOf(folder, n.Fun), ".Refuse") && len(n.Args) == 3 {
				status, code, detail = n.Args[0], n.Args[1], n.Args[2]
			}
		case *ast.CompositeLit:
			if len(n.Elts) == 4 {
				status, code, detail = n.Elts[1], n.Elts[2], n.Elts[3]
			}
			for i := range n.Elts {
				if pair, ok := n.Elts[i].(*ast.KeyValueExpr); ok && len(n.Elts) == 4 {
					field := map[string]*ast.Expr{"Kind": &status, "Code": &code, "Detail": &detail}
					if to := field[fmt.Sprint(pair.Key)]; to != nil {
						*to = pair.Value
					}
				}
			}
		}
		number := statuses[strings.TrimPrefix(nameOf(folder, status), "console.")]
		if status == nil || number == 0 || unserved.MatchString(folder) {
			return
		}
		if found[number] == nil {
			found[number] = map[string][]string{}
		}
		name, says := strings.Replace(s.text(folder, code), "…", "<parameter>", 1), s.text(folder, detail)
		if name == "<parameter>" { // it is a variable, whose values are declared elsewhere
			return
		}
		if strings.Trim(says, "…") == "" {
			says = "Its detail says why."
		}
		if all := found[number][name]; !slices.Contains(all, says) {
			found[number][name] = append(all, says)
		}
	})
	return found
}

// unserved are the folders whose answers are not the API's: stand-ins, and those that answers.md has.
var unserved = regexp.MustCompile(`platform/standin|ingest/|pipeline/(push|tasks)`)

// statuses are those of answers, by the names that they have here.
var statuses = func() map[string]int {
	all := map[string]int{}
	for status := 400; status < 600; status++ {
		if name := http.StatusText(status); name != "" {
			all["http.Status"+strings.NewReplacer(" ", "", "-", "").Replace(name)] = status
		}
	}
	maps.Copy(all, map[string]int{
		"Malformed": 400, "Forbidden": 403, "Absent": 404, "Conflict": 409, "Refused": 422, "Broken": 500,
	})
	return all
}()

// findings are the codes of what the doctor finds, with what each does and what to do.
func (s source) findings() (all []string) {
	s.each(func(folder string, node ast.Node) {
		if n, ok := node.(*ast.CallExpr); ok && nameOf(folder, n.Fun) == "finding.New" {
			effect := strings.TrimPrefix(s.text(folder, n.Args[1]), "…")
			all = append(all, fmt.Sprintf("`%s`: %s", s.text(folder, n.Args[0]),
				strings.TrimSpace(effect+" "+s.text(folder, n.Args[2]))))
		}
	})
	slices.Sort(all)
	return all
}

var ofResults = regexp.MustCompile(
	`^(The (?:results|reasons) (?:of|that|for) |\w+ is the (?:result|status|outcome) of )`)

// constants are those of a type of a package, or its results, each with its comment.
func (s source) constants(t *testing.T, folder, of string) (found []string) {
	t.Helper()
	s.each(func(in string, node ast.Node) {
		group, ok := node.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || in != "internal/"+folder {
			return
		}
		for _, spec := range group.Specs {
			value, text := spec.(*ast.ValueSpec), ""
			if len(value.Values) > 0 {
				text = strings.Trim(s.text(in, value.Values[0]), "…")
			}
			wanted := strings.HasSuffix(nameOf("", value.Type), "."+of)
			if of == "" {
				wanted = ofResults.MatchString(group.Doc.Text())
			}
			if text == "" || !wanted {
				continue
			}
			said := cmp.Or(value.Comment.Text(), value.Doc.Text())
			if !group.Lparen.IsValid() {
				said = ofResults.ReplaceAllString(group.Doc.Text(), "")
			}
			said = strings.TrimSuffix(strings.Join(strings.Fields(said), " "), ".")
			require.NotEmpty(t, said, "%s.%s says nothing of itself", folder, value.Names[0].Name)
			found = append(found, fmt.Sprintf("`%s`: %s", text, strings.TrimPrefix(said, value.Names[0].Name+": ")))
		}
	})
	require.NotEmpty(t, found, "%s %s", folder, of)
	return found
}
