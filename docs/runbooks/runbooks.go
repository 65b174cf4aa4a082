// Package runbooks holds the runbooks, so that a worker shows those of its own release. It owns no code.
package runbooks

import "embed"

// Files are the runbooks, such as dead-letters.md.
//
//go:embed *.md
var Files embed.FS
