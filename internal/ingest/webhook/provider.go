package webhook

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
)

// provider is a declaration of the catalog, compiled.
type provider struct {
	catalog.Provider
	// head is enough to know whether any queue wants the event.
	head   *pii.Projection
	events map[string]*mapping
	now    func() time.Time
}

// mapping is what becomes of the events of one type.
type mapping struct {
	catalog.ProviderEvent
	contract   *contract.Contract
	projection *pii.Projection
	time       input
	uid, order input
	// currency is of the amounts; of members the strict ones go first.
	currency        input
	members, listed []member
	// element is the number of the list's elements in the body; 0: one element is made of members outside of lists.
	element int
	ignored []int
	// paths are the body's, by those of the contract.
	paths map[string]string
}

// input is a reading with the numbers of its paths.
type input struct {
	catalog.Reading
	numbers []int
}

type member struct {
	input
	slot contract.Slot
}

func newProvider(declared catalog.Provider, contracts *contract.Set, now func() time.Time) *provider {
	rules := map[string]pii.Rule{declared.Type: pii.Code}
	if id := declared.ID; id != "header" && id != "body_hash" {
		rules[id] = pii.ID
	}
	p := &provider{Provider: declared, head: pii.NewProjection(rules), events: map[string]*mapping{}, now: now}
	for eventType, e := range declared.Events {
		p.events[eventType] = newMapping(declared, e, contracts.Typed(declared.Contract, e.Type))
	}
	return p
}

func newMapping(of catalog.Provider, e catalog.ProviderEvent, into *contract.Contract) *mapping {
	m := &mapping{ProviderEvent: e, contract: into, paths: map[string]string{}}
	m.time.Reading = e.Time
	if len(e.Time.Paths) == 0 {
		m.time.Reading = of.Time
	}
	rules, optional := map[string]pii.Rule{}, []string(nil)
	strict := map[string]bool{}
	read := func(in *input, rule pii.Rule) {
		for _, path := range in.Paths {
			rules[path] = in.Rule(rule)
			strict[path] = strict[path] || in.Needed
		}
	}
	read(&m.time, pii.Time)
	for _, condition := range e.Ignore {
		rules[condition.Path], strict[condition.Path] = pii.Code, true
	}
	for name, reading := range of.Mappings[e.Mapping] {
		one := member{input: input{Reading: reading}}
		rule, _ := catalog.Attribute(name)
		one.slot, _ = into.Slot(name)
		if rule = cmp.Or(rule, one.slot.Rule); rule == pii.Currency {
			m.currency = one.input
		}
		read(&one.input, rule)
		list := catalog.List(name)
		switch {
		case name == contract.AttrUID:
			m.uid = one.input
		case name == contract.AttrShopOrderID:
			m.order = one.input
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
	for _, in := range []*input{&m.time, &m.uid, &m.order, &m.currency} {
		in.number(m.projection)
	}
	for _, all := range [][]member{m.members, m.listed} {
		slices.SortFunc(all, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.turn(), b.turn()), strings.Compare(a.Paths[0], b.Paths[0]))
		})
		for i := range all {
			all[i].number(m.projection)
			if list := catalog.List(all[i].Paths[0]); list != "" {
				m.element = m.projection.Number(list + "[]")
			}
		}
	}
	for _, condition := range e.Ignore {
		m.ignored = append(m.ignored, m.projection.Number(condition.Path))
	}
	return m
}

// turn: an amount that must not be left out refuses before its currency is, and the other amounts go without it.
func (m member) turn() int {
	switch {
	case m.slot.Rule == pii.Amount && m.Needed:
		return 0
	case m.slot.Rule == pii.Currency:
		return 1
	default:
		return 2
	}
}

func (in *input) number(p *pii.Projection) {
	for _, path := range in.Paths {
		in.numbers = append(in.numbers, p.Number(path))
	}
}

// read minimizes the webhook, and maps what is left into the contract. Of an event that no queue wants only
// the head is read. The error is a *pii.Error or a *contract.Invalid.
func (p *provider) read(b *buffers, source catalog.Source, event *event, o *outcome) error {
	document, err := pii.Parse(event.raw)
	if err != nil {
		return err
	}
	f := filling{b: b}
	if _, err = f.minimize(p.head, document); err != nil {
		return err
	}
	id, eventType := string(f.text(p.head.Number(p.ID))), string(f.text(p.head.Number(p.Type)))
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
	o.eventID, o.eventType = id, eventType // minimized: they have their shapes
	event.route = source.Events[eventType]
	m := p.events[eventType]
	if event.route == "" || m == nil {
		o.ignore("no_queue")
		return nil
	}
	o.eventType = m.Type
	event.mapping = m
	if o.dropped, err = f.minimize(m.projection, document); err != nil {
		return err
	}
	for i, number := range m.ignored {
		condition, code := m.Ignore[i], string(f.text(number))
		if slices.Contains(condition.Is, code) || (condition.Not != nil && !slices.Contains(condition.Not, code)) {
			o.ignore(condition.Reason)
			return nil
		}
	}
	at, _ := f.first(&m.time)
	when := string(at)
	if m.time.As == "unix" {
		when = unix(at)
	}
	if when == "" {
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
