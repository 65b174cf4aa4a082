package delivery

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/pii"
)

const (
	// maxProblem is how much of a problem document is read, in bytes.
	maxProblem = 8 << 10
	// maxSaid bounds each text that is kept of one, in bytes.
	maxSaid = 200
)

// isProblem reports whether an answer is a problem document (RFC 9457).
func isProblem(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == "application/problem+json"
}

// problem is what a problem document says that people may read: its type, code and title. A text that the
// detectors find something personal in, or that does not print, is left out, and a long one is cut.
func problem(document []byte) string {
	members := map[string]jsontext.Value{}
	if json.Unmarshal(document, &members) != nil {
		return ""
	}
	var said []string
	for _, name := range []string{"type", "code", "title"} {
		text, err := jsontext.AppendUnquote(nil, members[name])
		if members[name].Kind() != '"' || err != nil || len(text) == 0 {
			continue
		}
		said = append(said, name+" "+safe(string(text)))
	}
	return strings.Join(said, ", ")
}

func safe(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return "left out: it does not print"
	}
	if found, is := pii.Detect(pii.UID, text); is {
		return "left out: " + found
	}
	if len(text) <= maxSaid {
		return fmt.Sprintf("%q", text)
	}
	end := maxSaid
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%q...", text[:end])
}
