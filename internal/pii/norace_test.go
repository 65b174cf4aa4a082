//go:build !race

package pii_test

const raceDetector = false
