//go:build race

package pii_test

// raceDetector: pools drop what they hold at random then, so that counting
// allocations counts nothing.
const raceDetector = true
