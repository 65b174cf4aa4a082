// Command installed reports, after the tests, whether Google's emulators are installed and
// which tests were skipped without them.
package main

import (
	"fmt"
	"os"

	"billhook/emulator"
)

func main() {
	if _, err := emulator.Find(); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "LEFT OUT: the same cases on Google's own Pub/Sub and Firestore emulators (e2e, internal/platform/gcp/...):", err)
		if os.Getenv("REQUIRE_EMULATORS") != "" {
			os.Exit(1)
		}
		return
	}
	_, _ = fmt.Fprintln(os.Stdout, "The end-to-end and conformance cases ran on Google's own Pub/Sub and Firestore emulators too.")
}
