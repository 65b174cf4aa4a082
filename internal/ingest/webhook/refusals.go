package webhook

import "billhook/internal/platform/serve"

// refusals is the table of what a sender is answered where its request is not taken. docs/answers.md prints it.
var refusals []*serve.Problem

// refuse adds an answer to the table. after is its Retry-After in seconds; 0: sending the same again does not help.
func refuse(status int, code, detail string, after int) *serve.Problem {
	refused := serve.Refuse(status, code, detail).After(after)
	refusals = append(refusals, refused)
	return refused
}
