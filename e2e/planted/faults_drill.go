package main

// faultsOfDrill are those of the embedded store's commits that are written together, and
// of the drill that would not see a loss.
var faultsOfDrill = []fault{
	{"a refused commit is forced to the disk", "internal/standin/commit.go", `return errNothing`, `return nil`, "internal/standin", "TestConcurrentCommitsShareOneForceToTheDisk"},
	{"a commit goes on whose caller has left", "internal/standin/commit.go", `if err := c.ctx.Err(); err != nil {`, `if err := c.ctx.Err(); err != nil && false {`,
		"internal/standin", "TestConcurrentCommitsShareOneForceToTheDisk"},
	{"a drill looks for no lost points", "e2e/burst/stack.go", `case have < points:`, `case have < 0:`, "e2e/burst", "TestWrongBalancesAreFound"},
}
