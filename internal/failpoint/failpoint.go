// Package failpoint owns the named places at which a test ends the process, as a
// crash would. It refuses to exist in a release: without the build tag failpoints,
// Hit does nothing and no name is compiled in.
package failpoint
