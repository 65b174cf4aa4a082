package signature

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/textproto"
	"regexp"
	"strings"
)

// Scheme describes how a sender signs: with HMAC-SHA256 over the parts in Signs. The zero Scheme is none.
type Scheme struct {
	Header string `json:"header"` // has the signature
	// Separator makes the header a list: behind each prefix is a signature, one for each secret of a rotation.
	Separator string `json:"separator"`
	Prefix    string `json:"prefix"`   // stands before each signature
	Encoding  string `json:"encoding"` // hex or base64
	// TimestampHeader has the time.
	TimestampHeader string `json:"timestamp_header"`
	// TimestampPrefix stands before the time where the header of the signature has it too.
	TimestampPrefix string `json:"timestamp_prefix"`
	Unit            string `json:"unit"` // of the Unix time: seconds or milliseconds
	// ReplayWindow is none where no time is signed; else it is WEBHOOK_TOLERANCE_SECONDS.
	ReplayWindow string `json:"replay_window"`
	IDHeader     string `json:"id_header"` // has the id of the message
	// DestinationHeader has the path that the message is for; it may be absent.
	DestinationHeader string `json:"destination_header"`
	// Signs is made of {id}, {timestamp} and {destination}, each with what joins it to the next, and {body}.
	Signs        string `json:"signs"`
	SecretPrefix string `json:"secret_prefix"` // behind it a secret is base64
}

// The schemes that Billhook itself signs with.
var (
	// Generic signs "timestamp.body", or "timestamp.destination.body" if X-Webhook-Destination is set: then the
	// signature is valid only at that path. A JSON body cannot be mistaken for a destination with a body.
	Generic = Scheme{
		Header: "X-Webhook-Signature", Encoding: "hex", TimestampHeader: "X-Webhook-Timestamp", Unit: seconds,
		DestinationHeader: "X-Webhook-Destination", Signs: "{timestamp}.{destination}.{body}",
	}
	// Standard is the scheme of Standard Webhooks.
	Standard = Scheme{
		Header: "webhook-signature", Prefix: "v1,", Separator: " ", Encoding: "base64",
		TimestampHeader: "webhook-timestamp", Unit: seconds,
		IDHeader: "webhook-id", Signs: "{id}.{timestamp}.{body}", SecretPrefix: "whsec_",
	}
	// Own has these schemes by name.
	Own = map[string]Scheme{"generic": Generic, "standard": Standard}
)

const (
	seconds = "seconds"
	none    = "none"
)

// part is a part that is signed before the body, and the text that joins it to the next.
type part struct{ of, joint string }

// compiled is a checked scheme. Its header names have net/http's spelling, which saves the conversion.
type compiled struct {
	Scheme
	parts   []part
	idJoint string // the text that joins the id to the next part
	encode  func(sum []byte) string
	decode  func(sum []byte, text string) bool
}

var (
	signedPart = regexp.MustCompile(`\{(id|timestamp|destination)\}([^{]+)`)
	isSigned   = regexp.MustCompile(`^(` + signedPart.String() + `)*$`)
)

// Check reports all mistakes in the scheme.
func (s Scheme) Check() error {
	_, err := s.compile()
	return err
}

func (s Scheme) compile() (*compiled, error) {
	var mistakes []error
	require := func(ok bool, what string) {
		if !ok {
			mistakes = append(mistakes, errors.New("signature: "+what))
		}
	}
	c, headers := &compiled{Scheme: s}, map[string]bool{}
	for _, header := range []*string{&c.Header, &c.TimestampHeader, &c.IDHeader, &c.DestinationHeader} {
		require(*header == "" || (!headers[*header] &&
			strings.Trim(strings.ToLower(*header), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""),
			"headers have names of letters, digits and -, each its own")
		headers[*header], *header = true, textproto.CanonicalMIMEHeaderKey(*header)
	}
	require(c.Header != "", "the header of the signature has no name")
	switch s.Encoding {
	case "hex":
		c.encode, c.decode = hex.EncodeToString, decodeHex
	case "base64":
		c.encode, c.decode = base64.StdEncoding.EncodeToString, decodeBase64
	default:
		require(false, "the encoding must be hex or base64")
	}
	timed := s.TimestampHeader != "" || s.TimestampPrefix != ""
	require(s.TimestampHeader == "" || s.TimestampPrefix == "",
		"the timestamp is in a header of its own or behind a prefix, not in both")
	require(s.TimestampPrefix == "" || (s.Separator != "" && s.Prefix != "" && s.Prefix != s.TimestampPrefix),
		"a list of signature and timestamp has a separator, and a prefix for each")
	require(s.Separator == "" || s.Prefix != "", "each signature of a list has a prefix")
	require(timed == (s.ReplayWindow != none) && (s.ReplayWindow == "" || s.ReplayWindow == none),
		"a scheme without a timestamp says replay_window: none, and no other does: a request of it can be sent "+
			"again for ever")
	require(timed == (s.Unit != "") && (!timed || s.Unit == seconds || s.Unit == "milliseconds"),
		"the unit of a timestamp must be seconds or milliseconds, and there is none without one")
	signed, ok := strings.CutSuffix(s.Signs, "{body}")
	require(ok, "what is signed must end with {body}")
	for of, has := range map[string]bool{
		"{timestamp}": timed, "{id}": s.IDHeader != "", "{destination}": s.DestinationHeader != "",
	} {
		require(has == (strings.Count(s.Signs, of) == 1),
			of+" must be signed once where it is declared, and only there")
	}
	require(isSigned.MatchString(signed),
		"what is signed has {id}, {timestamp} and {destination}, each with a text behind it, then {body}")
	for _, p := range signedPart.FindAllStringSubmatch(signed, -1) {
		if c.parts = append(c.parts, part{p[1], p[2]}); p[1] == "id" {
			c.idJoint = p[2]
		}
	}
	return c, errors.Join(mistakes...)
}
