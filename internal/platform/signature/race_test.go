//go:build race

package signature_test

// raceAllocations has no useful bound here: under the race detector a pool drops its contents
// at random.
const raceAllocations = 1000
