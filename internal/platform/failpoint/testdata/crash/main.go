// Command crash passes two fail points, one of them three times, and prints each.
package main

import (
	"os"

	"billhook/internal/platform/failpoint"
)

func main() {
	for _, name := range []string{"first", "again", "again", "again", "last"} {
		failpoint.Hit(name)
		_, _ = os.Stdout.WriteString(name + " ")
	}
}
