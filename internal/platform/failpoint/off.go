//go:build !failpoints

package failpoint

// Hit does nothing without the build tag failpoints.
func Hit(string) {} // inlined, so that the program does not contain the name
