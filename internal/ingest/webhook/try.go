package webhook

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
)

// Trial is what would leave ingest of a provider's webhook.
type Trial struct {
	EventID     string `json:"event_id" show:"Event"`
	EventType   string `json:"event_type" show:"Type"`
	Ignored     string `json:"ignored,omitempty" show:"Ignored"`
	UID         string `json:"uid,omitempty" show:"UID"`
	ShopOrderID string `json:"shop_order_id,omitempty" show:"Shop's order"`
	// Message is the body of the message, and Dropped what is left out of the webhook's.
	Message json.RawMessage `json:"message,omitempty"`
	Dropped []Drop          `json:"dropped" show:"Dropped"`
}

// Drop is a path of the webhook's body that does not leave, and why.
type Drop struct {
	Path string `json:"path" show:"Path"`
	Why  string `json:"why" show:"Why"`
}

// Try maps a body as the service would. The error is a *pii.Error or a *contract.Invalid, with the body's paths.
func Try(c *catalog.Catalog, of catalog.Provider, body []byte, now func() time.Time) (*Trial, error) {
	p, source := newProvider(of, c.Contracts, now), catalog.Source{Events: map[string]string{}}
	for eventType := range of.Events {
		source.Events[eventType] = of.Name
	}
	e, o := &event{item: item{raw: body, given: contract.Given{ID: "id-of-the-request"}}}, &outcome{}
	err := p.read(&buffers{}, source, e, o)
	if err == nil && !o.ignored {
		err = e.validate(o, true)
	}
	if err != nil {
		return nil, err
	}
	t := &Trial{EventID: o.eventID, EventType: o.eventType, Ignored: o.reason, UID: e.uid, ShopOrderID: e.shopOrder, Dropped: []Drop{}}
	if !o.ignored {
		text, err := e.body.Append(nil)
		if err != nil {
			return nil, err
		}
		t.Message = text
	}
	read := p.head.Rules()
	if e.mapping != nil {
		for path, rule := range e.mapping.projection.Rules() {
			read[path] = rule
		}
	}
	for _, v := range o.dropped {
		t.Dropped = append(t.Dropped, Drop{v.Path, v.Rule})
	}
	for _, path := range pathsOf(body) {
		if read[path] == (pii.Rule{}) {
			t.Dropped = append(t.Dropped, Drop{path, "no mapping names it"})
		}
	}
	return t, nil
}

var pointer = regexp.MustCompile(`/[0-9]+(/|$)`)

// pathsOf are the paths of a document's values in their order, each once.
func pathsOf(document []byte) (paths []string) {
	decoder := jsontext.NewDecoder(strings.NewReader(string(document)))
	for token, err := decoder.ReadToken(); err == nil; token, err = decoder.ReadToken() {
		kind := token.Kind()
		if kind == '{' || kind == '[' || kind == '}' || kind == ']' {
			continue
		}
		if in, n := decoder.StackIndex(decoder.StackDepth()); in == '{' && n%2 == 1 {
			continue // a name
		}
		at := pointer.ReplaceAllString(string(decoder.StackPointer()), "[]$1")
		path := strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", ".")
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}
