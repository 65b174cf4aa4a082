package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

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

// Append appends the body as it goes on the topic: compact, fields in the order of
// the type.
func (m *PayNow) Append(dst []byte) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buffer, m); err != nil {
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
	sum := sha256.New()
	if err := json.MarshalWrite(sum, struct {
		Contract  string      `json:"contract"`
		EventType string      `json:"eventType"`
		Data      *PayNowData `json:"data"`
	}{PayNowV1, m.EventType, &m.Data}); err != nil {
		return "", ErrMalformed // see Append
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
