package webhook

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

// filling is an event that is being mapped into its contract.
type filling struct {
	*mapping
	b        *buffers
	by       *pii.Projection
	body     contract.Body
	code     string // the currency's code; empty: none, or an unknown one
	codePath string
	dropped  *pii.Dropped
}

func (f *filling) minimize(p *pii.Projection, document pii.Document) (dropped pii.Dropped, err error) {
	f.by, f.b.values, f.b.at = p, f.b.values[:0], f.b.at[:0]
	f.b.minimized, dropped, err = p.Minimize(f.b.minimized[:0], &f.b.values, document)
	for _, v := range f.b.values {
		f.set(v)
	}
	return dropped, err
}

func (f *filling) set(v pii.Value) {
	for len(f.b.at) <= v.Number {
		f.b.at = append(f.b.at, pii.Value{})
	}
	f.b.at[v.Number] = v
}

func (f *filling) text(path string) []byte { return f.numbered(f.by.Number(path)) }

func (f *filling) numbered(number int) []byte {
	if number == 0 || number >= len(f.b.at) {
		return nil
	}
	return f.b.minimized[f.b.at[number].Start:f.b.at[number].End]
}

// first returns the first existing value of a reading, with its path; without one, the reading's first path.
func (f *filling) first(in *member) (text []byte, path string) {
	for i, number := range in.numbers {
		if text = f.numbered(number); len(text) > 0 {
			return text, in.Paths[i]
		}
	}
	if len(in.Paths) > 0 {
		path = in.Paths[0]
	}
	return nil, path
}

func (f *filling) fill() error {
	code, path := f.first(&f.currency)
	f.code, f.codePath = string(code), path
	if f.currency.As == "upper" {
		f.code = strings.ToUpper(f.code)
	}
	for i := range f.members {
		f.body.Touch(f.members[i].slot)
		if err := f.put(&f.members[i], 0); err != nil {
			return err
		}
	}
	if len(f.listed) == 0 {
		return nil
	}
	elements, isElement := 0, func(v pii.Value) bool { return v.Number == f.element }
	if f.element == 0 {
		elements = 1 // all values belong to this one
	}
	for _, v := range f.b.values {
		if isElement(v) {
			elements++
		}
	}
	f.body.Grow(f.listed[0].slot, elements)
	rest := f.b.values
	for i := range elements {
		rest = rest[slices.IndexFunc(rest, isElement)+1:]
		for n := range f.listed {
			for _, number := range f.listed[n].numbers {
				f.set(pii.Value{Number: number}) // clears the values of the element before
			}
		}
		for n := 0; n < len(rest) && !isElement(rest[n]); n++ {
			f.set(rest[n]) // values outside of the list are set, too
		}
		for n := range f.listed {
			if err := f.put(&f.listed[n], i); err != nil {
				return err
			}
		}
	}
	return nil
}

// put sets a member, or leaves it out and says why.
func (f *filling) put(m *member, i int) (err error) {
	value, path := f.first(m)
	if len(value) == 0 {
		return nil
	}
	text, wrong := "", ""
	switch {
	case m.As == "unix":
		if text = unix(value); text == "" {
			wrong = pii.Time.Name()
		}
	case m.slot.Rule == pii.Currency:
		if text = f.code; !issued(text) {
			wrong, f.code = "currency", ""
		}
	case m.slot.Rule == pii.Amount && m.As != "":
		if text, wrong, err = f.amount(m, value); wrong != "" && m.Needed {
			err = contract.Broken(path, wrong)
		}
	default:
		text = string(value)
	}
	switch {
	case err != nil:
	case wrong != "":
		f.dropped.Add(path, wrong)
	case text != "":
		f.body.Set(m.slot, i, text)
	}
	return err
}

func issued(code string) bool {
	_, ok := money.Exponent(code)
	return ok
}

// unix turns a time in seconds into RFC 3339; empty if RFC 3339 cannot express it.
func unix(text []byte) string {
	n, err := strconv.ParseInt(string(text), 10, 64)
	at := time.Unix(n, 0).UTC()
	if err != nil || n < 0 || at.Year() > 9999 {
		return ""
	}
	return at.Format(time.RFC3339)
}

// amount returns a decimal amount in the currency. wrong is its mistake; an error refuses the event.
func (f *filling) amount(m *member, value []byte) (decimal, wrong string, err error) {
	minor, given := whole(value)
	if m.As == "call" {
		minor, given, err = f.refunded(m.Paths)
	}
	switch {
	case err != nil, !given && m.As == "call":
	case !given:
		wrong = pii.Integer.Name()
	case m.With != "" && f.dropped.Has(m.With) && f.code != "":
		wrong = "needs_total"
	case f.code == "" && m.Needed:
		err = contract.Broken(f.codePath, "required")
	case f.code == "":
		wrong = "needs_currency"
	case !issued(f.code) && m.Needed:
		err = contract.Broken(f.codePath, "currency")
	case minor < 0:
		wrong = "negative"
	case minor > money.Max && !m.Needed, !issued(f.code):
		wrong = "amount"
	default:
		decimal, err = money.Format(minor, f.code) // there is no error for a known currency
	}
	return decimal, wrong, err
}

func whole(text []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

var indexes = regexp.MustCompile(`\[[0-9]*\]`)

// sent rewrites paths of the contract into paths of the provider's body, which its sender knows.
func (m *mapping) sent(violations []pii.Violation) {
	for i, v := range violations {
		if m == nil {
			return
		}
		if in, ok := m.paths[indexes.ReplaceAllString(v.Path, "[]")]; ok {
			violations[i].Path = strings.Replace(in, "[]", indexes.FindString(v.Path), 1)
		}
	}
}
