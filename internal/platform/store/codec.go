package store

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ErrUnreadable: a required field is missing or of another type. The text names the field, not its value.
var ErrUnreadable = errors.New("store: document is not readable")

// Encode converts a struct to the fields of a document. It stores the members that have a tag:
//
//	Queue   string     `store:"queue,required"`
//	Expires time.Time  `store:"expire_at,omitzero"`
//	Filter  Filter     `store:",inline"`
//
// omitzero leaves out a zero value or an empty list. The members of an inline struct become members of the
// document. required and strict are for Decode.
//
// Texts, bools, int and int64 are stored unchanged; times in UTC and microseconds; structs and maps with
// string keys as maps; a map[string]any unchanged; a []string or a slice of structs as a list; a pointer as
// its value. A []byte is stored as text or, if it is not UTF-8, in base64 in a field whose name ends with
// _base64. Encode panics on any other type.
func Encode[T any](from *T) map[string]any { return encode(reflect.ValueOf(from).Elem()) }

// Decode reads fields that Encode made, and ignores fields without a member. A missing field leaves its
// member unchanged; a field of another type sets it to zero, and a list or map loses elements of another
// type. Both are errors for a required member, only the latter for a strict one; they wrap ErrUnreadable.
func Decode[T any](fields map[string]any, into *T) error {
	return decode(fields, reflect.ValueOf(into).Elem())
}

type member struct {
	name                       string
	index                      []int
	bytes                      bool
	omitzero, required, strict bool
}

var members sync.Map

func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	var all []member
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("store")
		if !ok {
			continue
		}
		options := strings.Split(tag, ",")
		if slices.Contains(options, "inline") {
			for _, inner := range membersOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
			continue
		}
		all = append(all, member{
			name: options[0], index: f.Index, bytes: f.Type == reflect.TypeFor[[]byte](),
			omitzero: slices.Contains(options, "omitzero"),
			required: slices.Contains(options, "required"), strict: slices.Contains(options, "strict"),
		})
	}
	members.Store(t, all)
	return all
}

func encode(from reflect.Value) map[string]any {
	all, n := membersOf(from.Type()), 0
	for _, m := range all {
		if !m.omitzero {
			n += 2 // of the others about as many are stored, and a map for all of them would be twice as large
		}
	}
	fields := make(map[string]any, min(n, len(all)))
	for _, m := range all {
		switch value := from.FieldByIndex(m.index); {
		case m.omitzero && isZero(value):
		case m.bytes && !utf8.Valid(value.Bytes()):
			fields[m.name+"_base64"] = base64.StdEncoding.EncodeToString(value.Bytes())
		default:
			fields[m.name] = stored(value)
		}
	}
	return fields
}

func isZero(value reflect.Value) bool {
	if value.Type() == reflect.TypeFor[time.Time]() {
		return value.Addr().Interface().(*time.Time).IsZero()
	}
	list := value.Kind() == reflect.Slice && value.Type().Elem().Kind() != reflect.Uint8
	return value.IsZero() || list && value.Len() == 0
}

func stored(value reflect.Value) any {
	switch value.Kind() {
	case reflect.String:
		return value.String()
	case reflect.Int, reflect.Int64:
		return value.Int()
	case reflect.Bool:
		return value.Bool()
	case reflect.Pointer:
		return stored(value.Elem())
	case reflect.Map:
		if open, is := value.Addr().Interface().(*map[string]any); is {
			return maps.Clone(*open)
		}
		all, of := make(map[string]any, value.Len()), value.Type()
		name, element := reflect.New(of.Key()).Elem(), reflect.New(of.Elem()).Elem() // stored needs an address
		for each := value.MapRange(); each.Next(); {
			name.SetIterKey(each)
			element.SetIterValue(each)
			all[name.String()] = stored(element)
		}
		return all
	case reflect.Slice:
		if data, is := value.Addr().Interface().(*[]byte); is {
			return string(*data)
		}
		list := make([]any, value.Len())
		for i := range list {
			list[i] = stored(value.Index(i))
		}
		return list
	default:
		if at, is := value.Addr().Interface().(*time.Time); is {
			return at.UTC().Truncate(time.Microsecond)
		}
		return encode(value)
	}
}

func decode(fields map[string]any, into reflect.Value) error {
	for _, m := range membersOf(into.Type()) {
		value := into.FieldByIndex(m.index)
		found, there := fields[m.name]
		if m.bytes && !there {
			var encoded string
			if encoded, there = fields[m.name+"_base64"].(string); there {
				decoded, err := base64.StdEncoding.DecodeString(encoded)
				if value.SetBytes(decoded); err == nil {
					continue
				}
			}
		}
		if (m.required && !there) || (there && !take(found, value) && (m.required || m.strict)) {
			return fmt.Errorf("%w: field %s", ErrUnreadable, m.name)
		}
	}
	return nil
}

func take(found any, into reflect.Value) bool {
	switch into.Kind() {
	case reflect.String:
		text, ok := found.(string)
		into.SetString(text)
		return ok
	case reflect.Int, reflect.Int64:
		number, ok := found.(int64)
		into.SetInt(number)
		return ok
	case reflect.Bool:
		is, ok := found.(bool)
		into.SetBool(is)
		return ok
	case reflect.Pointer:
		pointed := reflect.New(into.Type().Elem())
		whole := take(found, pointed.Elem())
		if whole {
			into.Set(pointed)
		}
		return whole
	case reflect.Slice:
		if data, is := into.Addr().Interface().(*[]byte); is {
			text, ok := found.(string)
			*data = []byte(text)
			return ok
		}
		list, whole := found.([]any)
		into.SetZero()
		into.Grow(len(list))
		for _, element := range list {
			n := into.Len()
			if into.SetLen(n + 1); !take(element, into.Index(n)) {
				into.Index(n).SetZero()
				into.SetLen(n)
				whole = false
			}
		}
		return whole
	case reflect.Map:
		elements, whole := found.(map[string]any)
		if open, is := into.Addr().Interface().(*map[string]any); is {
			*open = maps.Clone(elements)
			return whole
		}
		into.Set(reflect.MakeMapWithSize(into.Type(), len(elements)))
		one := reflect.New(into.Type().Elem()).Elem()
		for name, element := range elements {
			one.SetZero()
			if take(element, one) {
				into.SetMapIndex(reflect.ValueOf(name), one)
			} else {
				whole = false
			}
		}
		return whole
	default:
		if at, is := into.Addr().Interface().(*time.Time); is {
			*at, is = found.(time.Time)
			return is
		}
		fields, ok := found.(map[string]any)
		return ok && decode(fields, into) == nil
	}
}
