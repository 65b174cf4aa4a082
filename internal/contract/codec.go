package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrMalformed: not one JSON document in valid UTF-8 without duplicate names, or not
// of the contract's shape.
var ErrMalformed = errors.New("contract: not a body of the contract")

// strict refuses what the contract does not name, so that nobody behind the topic
// ever sees more than it. Duplicate names and invalid UTF-8 are refused by default.
var strict = json.RejectUnknownMembers(true)

// DecodePayNow reads a paynow.v1 body: its shape, not its rules, which Validate
// checks. The error is ErrMalformed and repeats nothing of the data: not even the
// name of an unknown field, which may be anything.
func DecodePayNow(data []byte) (*PayNow, error) {
	body := &PayNow{}
	if err := json.Unmarshal(data, body, strict); err != nil {
		return nil, ErrMalformed
	}
	return body, nil
}

// DecodeEnvelope is to envelope.v1 what DecodePayNow is to paynow.v1.
func DecodeEnvelope(data []byte) (*Envelope, error) {
	body := &Envelope{}
	if err := json.Unmarshal(data, body, strict); err != nil {
		return nil, ErrMalformed
	}
	return body, nil
}

// DecodeRaw reads a message from before there were envelopes (requirements: billing
// queues, section 12): the members of a Payload, and perhaps an action beside them.
// What an envelope has beyond that is made up: its id is the one in the attributes,
// else the hash of the data, so that the same message is the same event; its action is
// the one in the attributes where the data has none; its time is that of publishing.
func DecodeRaw(data []byte, attributes map[string]string, publishedAt time.Time) (*Envelope, error) {
	var raw struct {
		Action  string `json:"action"`
		Payload `json:",inline"`
	}
	if err := json.Unmarshal(data, &raw, strict); err != nil || raw.Payload == (Payload{}) {
		return nil, ErrMalformed // an object that says nothing is not a message, and null is none
	}
	sum := sha256.Sum256(data)
	return &Envelope{
		ID:            cmp.Or(attributes[AttrEventID], "sha256:"+hex.EncodeToString(sum[:])),
		Action:        cmp.Or(raw.Action, attributes[AttrEventType]),
		CorrelationID: attributes[AttrCorrelationID],
		CreatedAt:     publishedAt.UTC().Format(time.RFC3339Nano),
		Payload:       raw.Payload,
	}, nil
}

// Append appends the body as it goes on the topic: compact, fields in the order of
// the type.
func (m *PayNow) Append(dst []byte) ([]byte, error) { return appendJSON(dst, m) }

// Append appends the body as it goes on the topic: compact, fields in the order of
// the type.
func (m *Envelope) Append(dst []byte) ([]byte, error) { return appendJSON(dst, m) }

func appendJSON(dst []byte, message any) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buffer, message); err != nil {
		return dst, ErrMalformed // a string that is not UTF-8, which no decoded body has
	}
	return buffer.Bytes(), nil
}

// PayloadHash is "sha256:" and the hex digest of contract, event type and data. Two
// events of one id are the same event exactly if their hashes are equal.
//
// The event id is the key that hashes are compared under. The timestamp is left out:
// an event without a time of its own has the time of its receipt there, and a
// provider's second delivery must not look like another payload.
func (m *PayNow) PayloadHash() (string, error) {
	return hash(struct {
		Contract  string      `json:"contract"`
		EventType string      `json:"eventType"`
		Data      *PayNowData `json:"data"`
	}{PayNowV1, m.EventType, &m.Data})
}

// PayloadHash is "sha256:" and the hex digest of contract, action and payload. What
// else an envelope has is about its way, and another try may have it otherwise.
func (m *Envelope) PayloadHash() (string, error) {
	return hash(struct {
		Contract string   `json:"contract"`
		Action   string   `json:"action"`
		Payload  *Payload `json:"payload"`
	}{EnvelopeV1, m.Action, &m.Payload})
}

func hash(of any) (string, error) {
	sum := sha256.New()
	if err := json.MarshalWrite(sum, of); err != nil {
		return "", ErrMalformed // see appendJSON
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Detect names the body format of a message: the one its contract attribute names,
// else the one whose fields the body has at its top. It is empty for a format that
// is not known, and for data that is not a JSON object.
func Detect(attributes map[string]string, data []byte) string {
	if format, ok := attributes[AttrContract]; ok {
		switch format {
		case PayNowV1, EnvelopeV1, MessageV1:
			return format
		default:
			return ""
		}
	}
	names, ok := topNames(data)
	has := func(wanted ...string) bool {
		for _, name := range wanted {
			if !names[name] {
				return false
			}
		}
		return true
	}
	switch {
	case !ok:
		return ""
	case has("eventId", "eventType"):
		return PayNowV1
	case has("action", "payload"):
		return EnvelopeV1
	case has("type", "data", "version"):
		return MessageV1
	default:
		return ""
	}
}

// topNames returns the member names of a JSON object, without looking into its values.
func topNames(data []byte) (names map[string]bool, ok bool) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, false
	}
	names = map[string]bool{}
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return nil, false
		}
		names[name.String()] = true
		if decoder.SkipValue() != nil {
			return nil, false
		}
	}
	_, err := decoder.ReadToken()
	return names, err == nil
}
