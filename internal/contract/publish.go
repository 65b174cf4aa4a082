package contract

import (
	"context"
	"errors"
)

// The known reasons why a publish was not confirmed; a publisher's errors wrap them. Senders
// get one answer for all of them. Operators need to know which it was.
var (
	// ErrTopicMissing: the project has no such topic. It has to be provisioned.
	ErrTopicMissing = errors.New("contract: no such topic")
	// ErrPublishDenied: the service may not publish there, or its identity is not known.
	ErrPublishDenied = errors.New("contract: not allowed to publish")
	// ErrBrokerDown: the broker does not answer, or says that it cannot.
	ErrBrokerDown = errors.New("contract: the broker is not available")
	// ErrBrokerQuota: the project has published as much as it may for now.
	ErrBrokerQuota = errors.New("contract: the project's quota is used up")
	// ErrPublisherFull: so much waits for the broker's confirmation that there was no room
	// in time.
	ErrPublisherFull = errors.New("contract: too much waits for confirmation")
	// ErrKeyHeldUp: an earlier message of the ordering key failed; its own error says why.
	ErrKeyHeldUp = errors.New("contract: an earlier message of the ordering key failed")
)

// PublishCause is the code of what an error of a publisher wraps, for logs and metrics:
// one of a closed set, and never empty.
func PublishCause(err error) string {
	for _, known := range [...]struct {
		err  error
		code string
	}{
		{ErrTopicMissing, "topic_missing"}, {ErrPublishDenied, "grant_missing"}, {ErrPublisherFull, "flow_control"},
		{ErrBrokerQuota, "quota"}, {ErrBrokerDown, "broker_unavailable"}, {ErrKeyHeldUp, "key_held_up"},
		{context.DeadlineExceeded, "broker_unavailable"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return "unknown"
}
