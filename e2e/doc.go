// Package e2e runs whole Billhooks: the embedded stack in one process, and the real
// binaries on Google's official emulators, behind gates that can be shut, under
// kill -9. Its tests hold the same cases against both. It refuses to reach inside:
// it sends webhooks, reads what is stored, published and logged, and nothing else.
package e2e
