package contract

import (
	"context"
	"errors"
)

// The reasons why a publish was not confirmed: senders get one answer for all, operators the code.
var (
	// ErrTopicMissing: the project has no such topic. It has to be provisioned.
	ErrTopicMissing = errors.New("contract: no such topic")
	// ErrPublishDenied: the service may not publish there, or its identity is not known.
	ErrPublishDenied = errors.New("contract: not allowed to publish")
	// ErrBrokerDown: the broker does not answer, or says that it cannot.
	ErrBrokerDown = errors.New("contract: the broker is not available")
	// ErrBrokerQuota: the project has published as much as it may for now.
	ErrBrokerQuota = errors.New("contract: the project's quota is used up")
	// ErrPublisherFull: there was no room in time for one more message to confirm.
	ErrPublisherFull = errors.New("contract: too much waits for confirmation")
	// ErrKeyHeldUp: an earlier message of the ordering key failed; its own error says why.
	ErrKeyHeldUp = errors.New("contract: an earlier message of the ordering key failed")
)

// PublishCause is the code of a publisher's error: one of a closed set, and never empty.
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
