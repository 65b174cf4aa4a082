package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
)

// provider is a compiled declaration of the catalog.
type provider struct {
	catalog.Provider
	// kind reads only the event type; head reads the members of an event without a queue.
	kind, head *pii.Projection
	events     map[string]*mapping
	now        func() time.Time
	// api is nil if nothing is read from it.
	api *api
}

// mapping maps the events of one type.
type mapping struct {
	catalog.ProviderEvent
	contract   *contract.Contract
	projection *pii.Projection
	// currency is the reading of the amounts' currency. The members are in the order of their precedence.
	time, uid, order, currency member
	members, listed            []member
	// element is the path number of the list's elements; 0: members outside of lists make one element.
	element int
	// paths has the body's paths, by the contract's.
	paths map[string]string
}

type member struct {
	catalog.Reading
	slot    contract.Slot
	numbers []int // of the paths, in the projection
}

func newProvider(declared catalog.Provider, contracts *contract.Set, now func() time.Time) *provider {
	rules := map[string]pii.Rule{declared.Type: pii.Code}
	if id := declared.ID; id != "header" && id != "body_hash" {
		rules[id] = pii.ID
	}
	p := &provider{Provider: declared, head: pii.NewProjection(rules), events: map[string]*mapping{}, now: now}
	p.kind = pii.NewProjection(map[string]pii.Rule{declared.Type: pii.Code})
	for eventType, e := range declared.Events {
		p.events[eventType] = newMapping(declared, e, contracts.Typed(declared.Contract, e.Type), p.head.Rules())
	}
	return p
}

// newMapping compiles a mapping. Its projection has the rules of the head, too.
func newMapping(
	of catalog.Provider, e catalog.ProviderEvent, into *contract.Contract, rules map[string]pii.Rule,
) *mapping {
	m := &mapping{ProviderEvent: e, contract: into, paths: map[string]string{}}
	if m.time.Reading = e.Time; len(e.Time.Paths) == 0 {
		m.time.Reading = of.Time
	}
	optional, strict := []string(nil), map[string]bool{}
	for path := range rules {
		strict[path] = true
	}
	read := func(in catalog.Reading, rule pii.Rule) {
		for _, path := range in.Paths {
			rules[path] = in.Rule(rule)
			strict[path] = strict[path] || in.Needed
		}
	}
	read(m.time.Reading, pii.Time)
	for _, condition := range e.Ignore {
		rules[condition.Path], strict[condition.Path] = pii.Code, true
	}
	for _, id := range catalog.Placeholder.FindAllStringSubmatch(e.Read, -1) {
		rules[id[1]] = pii.ID
	}
	for name, reading := range of.Mappings[e.Mapping] {
		one := member{Reading: reading}
		rule, _ := catalog.Attribute(name)
		one.slot, _ = into.Slot(name)
		if rule = cmp.Or(rule, one.slot.Rule); rule == pii.Currency {
			m.currency = one
		}
		read(reading, rule)
		list := catalog.List(name)
		switch {
		case name == contract.AttrUID:
			m.uid = one
		case name == contract.AttrShopOrderID:
			m.order = one
		case list != "":
			m.listed = append(m.listed, one)
			m.paths[list] = cmp.Or(catalog.List(reading.Paths[0]), reading.Paths[0])
		default:
			m.members = append(m.members, one)
		}
		m.paths[name] = reading.Paths[0]
	}
	for path := range rules {
		if !strict[path] {
			optional = append(optional, path)
		}
	}
	m.projection = pii.NewProjection(rules, optional...)
	for _, one := range []*member{&m.time, &m.uid, &m.order, &m.currency} {
		one.number(m.projection)
	}
	for _, all := range [][]member{m.members, m.listed} {
		slices.SortFunc(all, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.precedence(), b.precedence()), strings.Compare(a.Paths[0], b.Paths[0]))
		})
		for i := range all {
			one := &all[i]
			one.number(m.projection)
			if list := catalog.List(one.Paths[0]); list != "" {
				m.element = m.projection.Number(list + "[]")
			}
		}
	}
	return m
}

func (m *member) number(in *pii.Projection) {
	for _, path := range m.Paths {
		m.numbers = append(m.numbers, in.Number(path))
	}
}

// precedence: a required amount comes before its currency, without which optional amounts are dropped.
func (m member) precedence() int {
	switch {
	case m.slot.Rule == pii.Amount && m.Needed:
		return 0
	case m.slot.Rule == pii.Currency:
		return 1
	default:
		return 2
	}
}

// unread: members that are dropped unread may have duplicate names.
var unread = jsontext.AllowDuplicateNames(true)

// read minimizes the webhook, and maps it into the contract. If the event has no queue, or has mistakes, it
// reads only the head, whose mistakes come first. The error is as in Try.
func (p *provider) read(ctx context.Context, b *buffers, from *source, event *event, o *outcome) error {
	document, err := pii.Parse(event.raw, unread)
	if err != nil {
		return err
	}
	f, dropped, broken := filling{b: b}, pii.Dropped(nil), error(nil)
	b.values = b.values[:0]
	kind := p.kind.First(b.minimized[:0], &b.values, document)
	m, route := p.events[string(kind)], from.routes[string(kind)]
	wanted := m != nil && route != nil
	if wanted {
		dropped, broken = f.minimize(m.projection, document)
	}
	if !wanted || broken != nil {
		if _, err = f.minimize(p.head, document); err != nil {
			return err
		}
	}
	id, eventType := string(f.text(p.ID)), string(f.text(p.Type))
	switch p.ID {
	case "header":
		if id = event.given.ID; !pii.ID.Valid(id) {
			return contract.Broken(p.Signature.IDHeader, pii.ID.Name())
		}
	case "body_hash":
		sum := sha256.Sum256(event.raw)
		id = "sha256:" + hex.EncodeToString(sum[:])
	}
	switch {
	case id == "":
		return contract.Broken(p.ID, "required")
	case eventType == "":
		return contract.Broken(p.Type, "required")
	}
	o.EventID, o.eventType = id, eventType // their shapes were checked
	event.route = route
	if !wanted {
		o.ignore("no_queue")
		return nil
	}
	o.eventType, event.mapping, o.dropped = m.Type, m, dropped
	if broken != nil {
		return broken
	}
	for _, condition := range m.Ignore {
		code := string(f.text(condition.Path))
		if slices.Contains(condition.Is, code) || (condition.Not != nil && !slices.Contains(condition.Not, code)) {
			o.ignore(condition.Reason)
			return nil
		}
	}
	if err = p.readMore(ctx, &f, event, o); err != nil {
		return err
	}
	at, _ := f.first(&m.time)
	when := string(at)
	if m.time.As == "unix" {
		when = unix(at)
	}
	if when == "" { // an unneeded time is not formatted, since this runs for each webhook
		when = p.now().UTC().Format(time.RFC3339)
	}
	uid, _ := f.first(&m.uid)
	order, _ := f.first(&m.order)
	event.uid, event.shopOrder = string(uid), string(order)
	f.mapping, f.body, f.dropped = m, m.contract.New(id, m.Type, when), &o.dropped
	err = f.fill()
	event.body = f.body
	return err
}

// refunded is the one function that a declaration may call; see catalog.Functions. It returns the smaller one
// above 0 of the payment's amount and the refunded one. The error is a *contract.Invalid.
func (f *filling) refunded(paths []string) (minor int64, given bool, err error) {
	for i, path := range paths {
		n, ok := whole(f.text(path))
		switch {
		case !ok:
		case n < 0:
			return 0, false, contract.Broken(path, "negative")
		case i == 0, n > 0 && (!given || minor <= 0 || n < minor):
			minor, given = n, true
		}
	}
	return minor, given, nil
}

// Trial is what ingest would publish for a provider's webhook.
type Trial struct {
	EventID     string `json:"event_id" show:"Event"`
	EventType   string `json:"event_type" show:"Type"`
	Ignored     string `json:"ignored,omitempty" show:"Ignored"`
	UID         string `json:"uid,omitempty" show:"UID"`
	ShopOrderID string `json:"shop_order_id,omitempty" show:"Shop's order"`
	// Read is the URL that the service would read from the provider's API, if its source has a key.
	Read string `json:"read,omitempty" show:"Reads"`
	// Message is the body of the message; Dropped lists what is left out of the webhook.
	Message jsontext.Value `json:"message,omitempty" show:"Message"`
	Dropped []Drop         `json:"dropped" show:"Dropped"`
}

// Drop is a path of the webhook's body that is not published, and why.
type Drop struct {
	Path string `json:"path" show:"Path"`
	Why  string `json:"why" show:"Why"`
}

// Try maps a body as the service would. The error is a *pii.Error or a *contract.Invalid, with its paths.
func Try(c *catalog.Catalog, of catalog.Provider, body []byte, now func() time.Time) (*Trial, error) {
	p, from := newProvider(of, c.Contracts, now), &source{routes: map[string]*destination{}}
	for eventType := range of.Events {
		from.routes[eventType] = &destination{}
	}
	e, o := &event{raw: body, given: contract.Given{ID: "id-of-the-request"}}, &outcome{}
	err := p.read(context.Background(), &buffers{}, from, e, o)
	if err == nil && !o.Ignored {
		err = e.validate(o, true)
	}
	if err != nil {
		return nil, err
	}
	t := &Trial{
		EventID: o.EventID, EventType: o.eventType, Ignored: o.Reason, UID: e.uid, ShopOrderID: e.shopOrder,
		Read: e.read, Dropped: []Drop{},
	}
	if !o.Ignored {
		text, err := e.body.Append(nil)
		if err != nil {
			return nil, err
		}
		t.Message = text
	}
	read := p.head.Rules()
	if e.mapping != nil {
		maps.Copy(read, e.mapping.projection.Rules())
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

// pathsOf returns the paths of a document's values in order, each once.
func pathsOf(document []byte) (paths []string) {
	decoder := jsontext.NewDecoder(strings.NewReader(string(document)))
	for token, err := decoder.ReadToken(); err == nil; token, err = decoder.ReadToken() {
		kind := token.Kind()
		if kind == '{' || kind == '[' || kind == '}' || kind == ']' {
			continue
		}
		if in, n := decoder.StackIndex(decoder.StackDepth()); in == '{' && n%2 == 1 {
			continue // a member's name
		}
		at := pointer.ReplaceAllString(string(decoder.StackPointer()), "[]$1")
		path := strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", ".")
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}
