// Command installed says, after the tests, whether those that need Google's
// emulators ran, and what was left out where they did not.
package main

import (
	"context"
	"fmt"
	"os"

	"billhook/emulator"
)

func main() {
	if _, err := emulator.Find(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "LEFT OUT: the same cases on Google's own Pub/Sub and Firestore emulators (e2e, internal/gcp/...):", err)
		if os.Getenv("REQUIRE_EMULATORS") != "" {
			os.Exit(1)
		}
		return
	}
	_, _ = fmt.Fprintln(os.Stdout, "The end-to-end and conformance cases ran on Google's own Pub/Sub and Firestore emulators too.")
}
