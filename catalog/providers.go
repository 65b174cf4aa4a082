package catalog

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/signature"
)

const providersFiles = "providers/*.yaml"

// Provider is a sender of webhooks in a format of its own: how they are signed, and which members leave
// ingest. A path names a member of the body, with [] after a list. Paths that no mapping names are dropped.
type Provider struct {
	Name        string           `json:"-"`
	Description string           `json:"description"` // whose webhooks they are
	Contract    string           `json:"contract"`    // the format of the messages that are made of them
	Signature   signature.Scheme `json:"signature"`   // how they are signed, by its parts
	// ID is the path of the event's id; or header, for the signature's id_header; or body_hash.
	ID   string  `json:"id"`
	Type string  `json:"type"` // the path of the event's type
	Time Reading `json:"time"` // when an event happened, if it has no time of its own
	API  API     `json:"api"`  // where more is read, if a source has an api_key_variable
	// Mappings by a name: the members of the contract, uid and shop_order_id, with what each is read from.
	Mappings map[string]map[string]Reading `json:"mappings"`
	Events   map[string]ProviderEvent      `json:"events"` // by the provider's type; others are ignored
	// Setup is the steps in the provider's settings: {url} is the address behind a tunnel, {local} that of dev.
	Setup []string `json:"setup"`
}

// API is where a provider can be queried for what its webhooks lack.
type API struct {
	URL           string `json:"url"`           // an https address, before the paths that events read
	Authorization string `json:"authorization"` // the header of that name, with {key}
}

// ProviderEvent says what an event of one of a provider's types becomes.
type ProviderEvent struct {
	Type    string  `json:"type"`    // the contract's event type
	Mapping string  `json:"mapping"` // the name of its mapping
	Time    Reading `json:"time"`    // when it happened
	// Read is a path of the API, with an id of the body in braces. The answer becomes the body's member read.
	Read   string      `json:"read"`
	Ignore []Condition `json:"ignore"` // events of the type that are not taken, each for a reason
}

// Condition compares a code in an event.
type Condition struct {
	Path   string   `json:"path"`   // where the code stands
	Is     []string `json:"is"`     // one of these meets it
	Not    []string `json:"not"`    // any but these meets it, and none does too
	Reason string   `json:"reason"` // as the answer and the log say it
}

// Reading says where a value comes from: paths joined by |, of which the first that exists counts. How it is
// read may come before them: upper, digits (a whole number is an id), unix (seconds), minor or minor_text (an
// amount in the currency's minor unit, as a number or a text), or "call" and a function's name. "with" names
// the amount without which this one is left out. A bad value is left out; with a ! it refuses the webhook.
type Reading struct {
	As, Function, With string
	Paths              []string
	Needed             bool
	text               string
}

// Functions are the names that "call" may use; package webhook has the functions.
var Functions = []string{"refunded"}

// UnmarshalText reads a declaration, and accepts any: checkReading finds its mistakes.
func (r *Reading) UnmarshalText(text []byte) error {
	*r = Reading{text: string(text)}
	rest, needed := strings.CutSuffix(r.text, "!")
	words := strings.Fields(rest)
	r.Needed = needed
	if len(words) > 1 && forms[words[0]] != (form{}) {
		r.As, words = words[0], words[1:]
	}
	if len(words) > 1 && r.As == "call" {
		r.Function, words = words[0], words[1:]
	}
	if n := len(words) - 2; n > 0 && words[n] == "with" {
		r.With, words = words[n+1], words[:n]
	}
	r.Paths = strings.Split(strings.Join(words, ""), "|")
	return nil
}

// form has the rule for a value before it is read, and the rule for it afterwards.
type form struct{ read, made pii.Rule }

var forms = map[string]form{
	"upper": {pii.Code, pii.Currency}, "digits": {pii.Quantity, pii.ID}, "unix": {pii.Integer, pii.Time},
	"minor": {pii.Integer, pii.Amount}, "minor_text": {pii.Amount, pii.Amount},
	"call": {pii.Integer, pii.Amount},
}

// Rule returns the rule that a value must meet to be read as a member with the given rule.
func (r Reading) Rule(member pii.Rule) pii.Rule {
	if form, ok := forms[r.As]; ok {
		return form.read
	}
	return member
}

// List returns the list that a path is in, without its brackets; empty: none.
func List(path string) string {
	list, _, found := strings.Cut(path, "[]")
	if !found {
		return ""
	}
	return list
}

// Attribute reports whether a mapping's member is an attribute of the message, and its rule.
func Attribute(member string) (pii.Rule, bool) {
	rule, ok := contract.AttributeRules[member]
	return rule, ok && (member == contract.AttrUID || member == contract.AttrShopOrderID)
}

var (
	bodyPath = regexp.MustCompile(`^[A-Za-z0-9_-]+((\[\])?\.[A-Za-z0-9_-]+)*$`)
	readPath = regexp.MustCompile(`^(/([A-Za-z0-9_-]+|\{[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\}))+$`)
	// Placeholder is an id of the body in the path that an event reads.
	Placeholder = regexp.MustCompile(`\{([^}]+)\}`)
	// free matches the names of members that people write, or that are about them.
	free = regexp.MustCompile(
		`(^|_)(name|email|phone|address|ip|street|city|description|content|note|message|title|comment)$`)
)

// readProviders reads the folder's providers, and adds the built-in ones that fit its contracts.
func (c *Catalog) readProviders(r *reader, files fs.FS) {
	for file, p := range r.providers(files) {
		r.checkProvider(file, p, c.Contracts)
		c.Providers[p.Name] = p
	}
	for file, p := range builtin() {
		if _, own := c.Providers[p.Name]; !own {
			probe := &reader{unread: r.unread, lines: lines{}}
			if probe.checkProvider(file, p, c.Contracts); len(probe.mistakes) == 0 {
				c.Providers[p.Name] = p
			}
		}
	}
}

// builtin returns the program's own providers, by file.
var builtin = sync.OnceValue(func() map[string]Provider { return newReader().providers(embedded) })

func (r *reader) providers(files fs.FS) map[string]Provider {
	all := map[string]Provider{}
	found, _ := fs.Glob(files, providersFiles) // the pattern is good
	for _, file := range found {
		p := Provider{Name: strings.TrimSuffix(path.Base(file), ".yaml")}
		if root, ok := r.root(files, file); ok {
			tree, _ := r.branch(root, file, "")
			r.decode(tree, &p, file, "")
			all[file] = p
		}
	}
	return all
}

func (r *reader) checkProvider(place string, p Provider, contracts *contract.Set) {
	require := r.requirer(place)
	require(word.MatchString(p.Name) && p.Name != string(SchemeGeneric) && p.Name != string(SchemeStandard), "",
		"the file's name must be a word, and not generic or standard")
	require(p.Description != "", "description", "is missing")
	for _, m := range Mistakes(p.Signature.Check()) {
		r.wrong(place, "signature", strings.TrimPrefix(m.What, "signature: "))
	}
	require(bodyPath.MatchString(p.ID), "id",
		"must say where the event's id stands: a path, header or body_hash")
	require(p.ID != "header" || p.Signature.IDHeader != "", "id",
		"is header, and the signature has no id_header")
	require(bodyPath.MatchString(p.Type) && List(p.Type) == "", "type", "must be the path of the event's type")
	r.checkReading(place, "time", p.Time, pii.Time)
	require(len(p.Events) > 0, "events", "there is none")
	r.checkAPI(place, p)
	if contracts == nil || r.unread[messagesFile] {
		return
	}
	if !contracts.Known(p.Contract) {
		r.wrong(place, "contract", "must be one of "+strings.Join(contracts.Names(), ", "))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Mappings)) {
		used, at := false, join("mappings", name)
		for _, eventType := range slices.Sorted(maps.Keys(p.Events)) {
			if e := p.Events[eventType]; e.Mapping == name {
				r.checkMapping(place, at, p.Mappings[name], contracts.Typed(p.Contract, e.Type), e.Type, !used)
				used = true
			}
		}
		require(used, at, "no event uses it")
	}
	for eventType, e := range p.Events {
		at := join("events", eventType)
		require(anyCase.MatchString(eventType), at, nameRule)
		declared := anyCase.MatchString(e.Type) && contracts.Typed(p.Contract, e.Type) != nil
		require(declared, at+".type", "is declared by no "+p.Contract+" contract")
		require(p.Mappings[e.Mapping] != nil, at+".mapping", "there is no mapping "+shown(e.Mapping))
		r.checkReading(place, at+".time", e.Time, pii.Time)
		for i, condition := range e.Ignore {
			here := fmt.Sprintf("%s.ignore[%d]", at, i)
			isPath := bodyPath.MatchString(condition.Path) && List(condition.Path) == ""
			require(isPath, here+".path", "must be a path, of no list")
			require((len(condition.Is) > 0) != (len(condition.Not) > 0), here, "must have is or not, and not both")
			require(word.MatchString(condition.Reason), here+".reason", "must be a word")
		}
	}
}

// checkAPI checks that more of an event is read only at the provider's own address, never at a webhook's.
func (r *reader) checkAPI(place string, p Provider) {
	require := r.requirer(place)
	if p.API != (API{}) {
		at, err := url.Parse(p.API.URL)
		require(err == nil && at.Scheme == "https" && at.Host != "" && at.User == nil &&
			!strings.ContainsAny(p.API.URL, "?#") && !strings.HasSuffix(at.Path, "/"),
			"api.url", "must be an https address, without a query and a / at its end")
		require(strings.Count(p.API.Authorization, "{key}") == 1, "api.authorization", "must have {key} once")
	}
	for eventType, e := range p.Events {
		if e.Read == "" {
			continue
		}
		at := join("events", eventType) + ".read"
		require(readPath.MatchString(e.Read), at,
			"must be a path of the API such as /orders/{data.order_id}, with paths of the body in braces")
		require(p.API != (API{}), at, "the provider has no api")
		takes, ofAnswer := false, func(path string) bool { return strings.HasPrefix(path, "read.") }
		for _, reading := range p.Mappings[e.Mapping] {
			takes = takes || slices.ContainsFunc(reading.Paths, ofAnswer)
		}
		require(takes, at, "its mapping takes nothing of the answer: no path begins with read.")
	}
}

// checkMapping checks the mapping for one of the events that use it.
func (r *reader) checkMapping(
	place, at string, members map[string]Reading, into *contract.Contract, eventType string, first bool,
) {
	if into == nil {
		return // checkProvider reports the event
	}
	require := r.requirer(place)
	said := func(ok bool, member, what string) { require(ok, join(at, member), what) }
	amounts, currencies, rules := map[string]bool{}, 0, map[string]pii.Rule{}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		reading := members[member]
		rule, isAttribute := Attribute(member)
		if !isAttribute {
			slot, ok := into.Slot(member)
			rule = slot.Rule
			said(ok && strings.Contains(member, "."), member,
				"is no member of the data of "+eventType+", and neither uid nor shop_order_id")
			if !ok {
				continue
			}
		}
		if first {
			r.checkReading(place, join(at, member), reading, rule)
		}
		if rule == pii.Currency {
			currencies++
		}
		for _, path := range reading.Paths {
			amounts[path] = amounts[path] || rule == pii.Amount
			had, twice := rules[path]
			said(!twice || had == reading.Rule(rule), member, shown(path)+" is read in two ways")
			said(List(path) == "" || List(member) != "", member, "is in no list, and "+shown(path)+" is")
			rules[path] = reading.Rule(rule)
		}
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		with, reading := members[member].With, members[member]
		said(with == "" || amounts[with], member, shown(with)+" is no amount of the mapping")
		said(!reading.amount() || currencies == 1, member, "an amount needs the one currency of its mapping")
	}
	for _, needed := range into.Required(eventType) {
		parent := needed[:max(0, strings.LastIndexByte(needed, '.'))]
		touched, mapped := false, false
		for member := range members {
			touched = touched || strings.HasPrefix(member, parent+".")
			within := strings.HasPrefix(member, needed+".") || strings.HasPrefix(member, needed+"[].")
			mapped = mapped || member == needed || within
		}
		require(mapped || !touched || parent == "", at, eventType+" needs "+needed+", which is not mapped")
	}
}

func (r Reading) amount() bool { return strings.HasPrefix(r.As, "minor") || r.As == "call" }

func (r *reader) checkReading(place, at string, reading Reading, member pii.Rule) {
	if reading.text == "" {
		return
	}
	require := func(ok bool, what string) { r.requirer(place)(ok, at, what) }
	for _, path := range reading.Paths {
		require(bodyPath.MatchString(path) && strings.Count(path, "[]") <= 1,
			"must be a path of the body such as data.lines[].price, perhaps with how it is read before it")
		require(!free.MatchString(path[strings.LastIndexByte(path, '.')+1:]),
			shown(path)+" holds free text, or is about a person: it does not leave ingest")
		require(List(path) == List(reading.Paths[0]), "its paths are of several lists")
	}
	made := reading.As == "" || forms[reading.As].made == member
	require(made, reading.As+" does not make a value of the shape "+member.Name())
	known := reading.As != "call" || slices.Contains(Functions, reading.Function)
	require(known, "no function has the name "+shown(reading.Function))
}

// Mapped returns the contract and the event type of the message that a source's event becomes.
func (c *Catalog) Mapped(s Source, eventType string) (format, mapped string, ok bool) {
	p, declared := c.Providers[string(s.Scheme)]
	if !declared {
		return "", eventType, true
	}
	e, ok := p.Events[eventType]
	return p.Contract, e.Type, ok
}

// Signature returns how a source's webhooks are signed.
func (c *Catalog) Signature(s Source) signature.Scheme {
	if p, ok := c.Providers[string(s.Scheme)]; ok {
		return p.Signature
	}
	return signature.Own[string(s.Scheme)]
}
