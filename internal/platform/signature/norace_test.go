//go:build !race

package signature_test

const raceAllocations = 0
