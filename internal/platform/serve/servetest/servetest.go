// Package servetest writes the tables of answers that the reference prints, in Markdown.
package servetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/platform/serve"
)

// Table returns a row for each status and Retry-After, with its codes.
func Table(all serve.Refusals) string {
	var rows []string
	last := &serve.Problem{}
	for _, p := range slices.SortedFunc(slices.Values(all), func(a, b *serve.Problem) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.RetryAfter, b.RetryAfter),
			cmp.Compare(a.Code, b.Code))
	}) {
		said := fmt.Sprintf("`%s`: %s", p.Code, p.Detail)
		switch end := len(rows) - 1; {
		case p.Status != last.Status || p.RetryAfter != last.RetryAfter:
			after := ""
			if p.RetryAfter > 0 {
				after = strconv.Itoa(p.RetryAfter) + " s"
			}
			rows = append(rows, fmt.Sprintf("| %d | %s | %s", p.Status, after, said))
		case p.Detail == last.Detail:
			rows[end] = strings.TrimSuffix(rows[end], ": "+p.Detail) + ", " + said
		default:
			rows[end] += "<br>" + said
		}
		last = p
	}
	return "| answer | `Retry-After` | code, and what it says |\n| ---: | ---: | --- |\n" +
		strings.Join(rows, " |\n") + " |\n"
}
