// Package envtest owns docs/reference/variables.md and compares it with the programs that read the variables.
package envtest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/env"
)

const page = "../../docs/reference/variables.md"

// Page compares the page with a program's help. The page lists variables that both services read only once.
func Page(t require.TestingT, program string, help env.Help) {
	source := filetest.Read(t, "..", "..", "internal", "compose", "service", "service.go")
	both, own := "", ""
	for _, v := range help.Own {
		options, preset, unset := "", "", v.Default
		if v.Required {
			options, unset = ",required", "required"
		}
		if v.Default != "" {
			preset = fmt.Sprintf(" envDefault:%q", v.Default)
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", v.Name, unset, v.About)
		if strings.Contains(source, fmt.Sprintf("`env:%q%s about:%q`", v.Name+options, preset, v.About)) {
			both += row
		} else {
			own += row
		}
	}
	named := filetest.Map(help.Catalog, func(v env.Variable) string {
		return fmt.Sprintf("`%s`: %s", v.Name, v.About)
	})
	own += fmt.Sprintf("| those that the catalog names, for the queues that run | required | %s |\n",
		strings.Join(named, "<br>"))
	for name, rows := range map[string]string{"both": both, program: own} {
		table := "| variable | where it is not set | what it is |\n| --- | --- | --- |\n" + rows
		mark := fmt.Sprintf("<!-- %s: go test ./cmd/webhook ./cmd/worker -run TheHelp -update -->\n", name)
		filetest.Part(t, table, mark, "<!-- end of "+name+" -->\n", page)
	}
}
