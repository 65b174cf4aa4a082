// Package failpoint owns the named places where a test ends the process, as a crash would.
// Without the build tag failpoints, Hit does nothing and no name is in the program: a release
// has no fail points.
package failpoint
