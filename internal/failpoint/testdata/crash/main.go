// Command crash passes two failpoints, one of them three times, and says how far it came.
package main

import (
	"os"

	"billhook/internal/failpoint"
)

func main() {
	for _, name := range []string{"first", "again", "again", "again", "last"} {
		failpoint.Hit(name)
		_, _ = os.Stdout.WriteString(name + " ")
	}
}
