package retry

import (
	"slices"

	"billhook/internal/pii"
)

// MaxSubjects is how many subjects a verdict names at most.
const MaxSubjects = 5

// BadRequest marks a message that names what does not exist: the handler's verdict of
// class 400. The subjects are the ids of what is missing, for whoever is to mend it: they
// stand in the dead letter's detail and in the log, never in the reason. One that has not
// the shape of an id is left out, and so is what comes after the first MaxSubjects. cause
// may be nil.
func BadRequest(reason string, cause error, subjects ...string) error {
	named := slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool { return !pii.ID.Valid(subject) })
	return &Error{
		Verdict:  Verdict{Class: Malformed, Reason: reason, Counts: true},
		Subjects: named[:min(len(named), MaxSubjects)], Err: cause,
	}
}
