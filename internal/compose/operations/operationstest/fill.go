package operationstest

import (
	"reflect"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/inspect/bulk"
)

// Fill sets all members: texts to a text, numbers to 1, and lists to one item. The token of the next page
// stays empty, so that a list ends. An operation is over, so that a client does not wait for it.
func Fill(v reflect.Value, text string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)))
		return
	case bulk.Progress:
		v.SetString(string(bulk.Finished))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem(), text)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // JSON is bytes too
			quoted, _ := jsontext.AppendQuote(nil, text)
			v.SetBytes(quoted)
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		Fill(v.Index(0), text)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		Fill(key, text)
		Fill(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Next" && v.Type().Field(i).IsExported() {
				Fill(v.Field(i), text)
			}
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(text))
	default:
	}
}
