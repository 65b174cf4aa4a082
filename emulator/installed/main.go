// Command installed reports, after the tests, which ones were skipped for lack of Google's emulators.
package main

import (
	"fmt"
	"os"

	"billhook/emulator"
)

func main() {
	_, err := emulator.Find()
	if err == nil {
		_, _ = fmt.Fprintln(os.Stdout, "The cases of e2e and internal/platform/gcp ran on Google's emulators, too.")
		return
	}
	_, _ = fmt.Fprintln(os.Stdout,
		"LEFT OUT: the same cases on Google's emulators (e2e, internal/platform/gcp/...):", err)
	if os.Getenv("REQUIRE_EMULATORS") != "" {
		os.Exit(1)
	}
}
