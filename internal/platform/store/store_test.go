package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

var noon = time.Unix(0, 0)

func key(id string) store.Key { return store.Key{Collection: "things", ID: id} }

func TestCheckWritesAcceptsWhatAStoreCanKeep(t *testing.T) {
	t.Parallel()
	many := make([]store.Write, store.MaxWrites)
	for i := range many {
		many[i] = store.Set(key(fmt.Sprint(i)), nil)
	}
	for name, writes := range map[string][]store.Write{
		"every operation": {
			store.Create(key("a"), map[string]any{"n": int64(1)}), store.Set(key("b"), nil), store.Replace(key("c"), 7, nil),
			store.Increment(key("d"), map[string]int64{"n": 1}, map[string]any{"at": time.Unix(0, 0)}),
			store.Delete(key("e"), 0), store.Delete(key("f"), 3),
		},
		"every kind of value": {store.Set(key("a"), map[string]any{
			"s": "ů", "b": true, "i": int64(-1), "t": time.Unix(1, 0), "z": nil,
			"m": map[string]any{"in": map[string]any{"deep": "x"}}, "l": []any{"x", map[string]any{"l": []any{int64(1)}}},
		})},
		"as many writes as fit":       many,
		"an id of the longest length": {store.Set(key(strings.Repeat("x", store.MaxIDBytes)), nil)},
		"names that almost look kept": {store.Set(key("__x"), map[string]any{"x__": "", "__": ""})},
		"one id in two collections":   {store.Set(key("a"), nil), store.Set(store.Key{Collection: "others", ID: "a"}, nil)},
		"the deepest document":        {store.Set(key("a"), nested(store.MaxDepth))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, store.CheckWrites(writes))
		})
	}
}

func TestCheckWritesRefuses(t *testing.T) {
	t.Parallel()
	fields := func(value any) []store.Write { return []store.Write{store.Set(key("a"), map[string]any{"x": value})} }
	for name, writes := range map[string][]store.Write{
		"no writes":                         nil,
		"too many writes":                   make([]store.Write, store.MaxWrites+1),
		"two writes to one document":        {store.Set(key("a"), nil), store.Increment(key("a"), map[string]int64{"n": 1}, nil)},
		"no operation":                      {{Key: key("a")}},
		"an operation nobody knows":         {{Op: 99, Key: key("a")}},
		"an update without a version":       {{Op: store.OpUpdate, Key: key("a")}},
		"an increment of nothing":           {store.Increment(key("a"), nil, map[string]any{"x": ""})},
		"an increment of what it also sets": {store.Increment(key("a"), map[string]int64{"x": 1}, map[string]any{"x": int64(1)})},
		"an increment of a reserved name":   {store.Increment(key("a"), map[string]int64{"__x__": 1}, nil)},
		"no collection":                     {store.Set(store.Key{ID: "a"}, nil)},
		"no id":                             {store.Set(key(""), nil)},
		"an id with a slash":                {store.Set(key("a/b"), nil)},
		"an id with a control character":    {store.Set(key("a\nb"), nil)},
		"an id that is too long":            {store.Set(key(strings.Repeat("x", store.MaxIDBytes+1)), nil)},
		"an id of a dot":                    {store.Set(key("."), nil)},
		"an id of two dots":                 {store.Set(key(".."), nil)},
		"a reserved id":                     {store.Set(key("__x__"), nil)},
		"an id that is not UTF-8":           {store.Set(key("a\xff"), nil)},
		"a time before the year 1":          fields(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a time after the year 9999":        fields(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a float":                           fields(1.5),
		"an int":                            fields(1),
		"bytes":                             fields([]byte("x")),
		"a float in a list":                 fields([]any{1.5}),
		"a float in a map":                  fields(map[string]any{"y": 1.5}),
		"a string that is not UTF-8":        fields("a\xffb"),
		"a list within a list":              fields([]any{[]any{"x"}}),
		"a reserved name":                   fields(map[string]any{"__x__": ""}),
		"an empty name":                     fields(map[string]any{"": ""}),
		"a name that is not UTF-8":          fields(map[string]any{"a\xff": ""}),
		"a document that is too deep":       {store.Set(key("a"), nested(store.MaxDepth+1))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, store.CheckWrites(writes), store.ErrInvalid)
		})
	}
}

func TestTheErrorsRepeatNoValueAndNoName(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"ilse\xff", map[string]any{"__ilse__": ""}, map[string]any{"x": 1.5}} {
		err := store.CheckWrites([]store.Write{store.Set(key("a"), map[string]any{"x": value})})
		require.ErrorIs(t, err, store.ErrInvalid)
		require.NotContains(t, err.Error(), "ilse")
	}
}

func TestCheckQuery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		query store.Query
		valid bool
	}{
		"a page":                      {store.Query{Collection: "things", Limit: store.MaxPage}, true},
		"a page behind an id":         {store.Query{Collection: "things", IDPrefix: "a-", After: store.Cursor{ID: "a-1"}, Limit: 1}, true},
		"a page of equals":            {store.Query{Collection: "things", Equal: map[string]any{"s": "", "b": true, "i": int64(1), "t": time.Unix(0, 0)}, Limit: 1}, true},
		"no collection":               {store.Query{Limit: 1}, false},
		"no limit":                    {store.Query{Collection: "things"}, false},
		"a limit that is too high":    {store.Query{Collection: "things", Limit: store.MaxPage + 1}, false},
		"a page behind a longest id":  {store.Query{Collection: "things", IDPrefix: strings.Repeat("x", 1400), After: store.Cursor{ID: strings.Repeat("x", store.MaxIDBytes)}, Limit: 1}, true},
		"a prefix that is too long":   {store.Query{Collection: "things", IDPrefix: strings.Repeat("x", store.MaxIDBytes+1), Limit: 1}, false},
		"a reserved prefix":           {store.Query{Collection: "things", IDPrefix: "__x__", Limit: 1}, false},
		"a slash in the prefix":       {store.Query{Collection: "things", IDPrefix: "a/", Limit: 1}, false},
		"a comparison with a float":   {store.Query{Collection: "things", Equal: map[string]any{"f": 1.5}, Limit: 1}, false},
		"a comparison with a map":     {store.Query{Collection: "things", Equal: map[string]any{"m": map[string]any{}}, Limit: 1}, false},
		"a comparison with non-UTF-8": {store.Query{Collection: "things", Equal: map[string]any{"s": "\xff"}, Limit: 1}, false},
		"what is due":                 {store.Query{Collection: "things", Due: &store.Due{Field: "at", Until: noon}, Limit: 1}, true},
		"what is due, of no field":    {store.Query{Collection: "things", Due: &store.Due{Until: noon}, Limit: 1}, false},
		"what is due and equals":      {store.Query{Collection: "things", Due: &store.Due{Field: "at", Until: noon}, Equal: map[string]any{"s": ""}, Limit: 1}, true},
		"what is due behind an id":    {store.Query{Collection: "things", Due: &store.Due{Field: "at", Until: noon}, After: store.Cursor{ID: "a"}, Limit: 1}, false},
		"what is due of a prefix":     {store.Query{Collection: "things", Due: &store.Due{Field: "at", Until: noon}, IDPrefix: "a", Limit: 1}, false},
		"a text in a list":            {store.Query{Collection: "things", Contains: map[string]string{"l": ""}, IDPrefix: "a", After: store.Cursor{ID: "a-1"}, Limit: 1}, true},
		"texts in two lists":          {store.Query{Collection: "things", Contains: map[string]string{"l": "a", "m": "b"}, Limit: 1}, false},
		"non-UTF-8 in a list":         {store.Query{Collection: "things", Contains: map[string]string{"l": "\xff"}, Limit: 1}, false},
		"a text in a list, when due":  {store.Query{Collection: "things", Contains: map[string]string{"l": "a"}, Due: &store.Due{Field: "at", Until: noon}, Limit: 1}, false},
		"the newest":                  {store.Query{Collection: "things", Newest: &store.Newest{Field: "at", Until: noon}, After: store.Cursor{At: noon, ID: "a"}, Limit: 1}, true},
		"the newest of no field":      {store.Query{Collection: "things", Newest: &store.Newest{}, Limit: 1}, false},
		"the newest of a prefix":      {store.Query{Collection: "things", Newest: &store.Newest{Field: "at"}, IDPrefix: "a", Limit: 1}, false},
		"the newest behind no time":   {store.Query{Collection: "things", Newest: &store.Newest{Field: "at"}, After: store.Cursor{At: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), ID: "a"}, Limit: 1}, false},
		"a name that is not UTF-8":    {store.Query{Collection: "things", Equal: map[string]any{"\xff": "s"}, Limit: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := store.CheckQuery(test.query)
			if test.valid {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, store.ErrInvalid)
		})
	}
}

// nested returns fields with maps in them, depth levels in all.
func nested(depth int) map[string]any {
	fields := map[string]any{}
	for range depth - 1 {
		fields = map[string]any{"m": fields}
	}
	return fields
}
