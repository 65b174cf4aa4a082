// Package e2e runs whole Billhooks: the embedded stack in one process, and the real binaries on
// Google's emulators, behind gates that can be shut, under kill -9. Its tests run the same
// cases against both. It refuses to use internals: it sends webhooks and reads what is stored,
// published and logged.
package e2e
