//go:build race

package signature_test

// raceAllocations: pools drop what they hold at random under the race detector, so
// that no bound holds there.
const raceAllocations = 1000
