package contract

// Body is a decoded body of any of the formats.
type Body interface {
	// Identity returns the idempotency key and the event type.
	Identity() (id, eventType string)
	// Validate reports every rule that the body breaks, as an *Invalid.
	Validate() error
	// CheckAttributes reports whether the attributes of the message that carries the
	// body keep their rules and agree with it. The error is an *Invalid.
	CheckAttributes(message map[string]string) error
	// PayloadHash is equal for two messages of one id exactly if they say the same.
	PayloadHash() (string, error)
	// Append appends the body as it goes on the topic.
	Append(dst []byte) ([]byte, error)
}

var (
	_ Body = (*PayNow)(nil)
	_ Body = (*Envelope)(nil)
)

// Decodes reports whether there is a Body of the format.
func Decodes(format string) bool { return format == PayNowV1 || format == EnvelopeV1 }

// Decode reads a body of the format: its shape, not its rules. The error is
// ErrMalformed, also for a format that is not decoded.
func Decode(format string, data []byte) (Body, error) {
	switch format {
	case PayNowV1:
		if body, err := DecodePayNow(data); err == nil {
			return body, nil
		}
	case EnvelopeV1:
		if body, err := DecodeEnvelope(data); err == nil {
			return body, nil
		}
	}
	return nil, ErrMalformed
}
