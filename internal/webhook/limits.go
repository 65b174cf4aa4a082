package webhook

import (
	"cmp"
	"context"

	"billhook/catalog"
)

// Admission limits what the door takes.
type Admission interface {
	// Admit reports whether a message for the queue may be published now. The error is a
	// *serve.Problem that says when to come again. user is whose message it is, and empty where
	// nobody's or where the queue does not ask. What cannot be known refuses nothing.
	Admit(ctx context.Context, q catalog.Queue, user string) error
}

// admitted asks whether a message may be published on the queue. It is asked once for each
// message, and counts it.
func (s *Service) admitted(ctx context.Context, q catalog.Queue, in inbound) error {
	if s.config.Admission == nil {
		return nil
	}
	user := ""
	if len(q.Rate.User) > 0 {
		a := in.message.Attributes()
		a.UID = cmp.Or(in.uid, a.UID)
		user = in.message.OrderingKey(q.Rate.User, &a)
	}
	return s.config.Admission.Admit(ctx, q, user)
}
