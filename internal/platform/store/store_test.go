package store_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

var noon = time.Unix(0, 0)

func key(id string) store.Key { return store.Key{Collection: "things", ID: id} }

func TestCheckWritesAcceptsWhatAStoreCanKeepAndNothingElse(t *testing.T) {
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
		require.NoError(t, store.CheckWrites(writes), name)
	}
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
		"a string that is not UTF-8":        fields("ilse\xff"),
		"a list within a list":              fields([]any{[]any{"x"}}),
		"a reserved name":                   fields(map[string]any{"__ilse__": ""}),
		"an empty name":                     fields(map[string]any{"": ""}),
		"a name that is not UTF-8":          fields(map[string]any{"a\xff": ""}),
		"a document that is too deep":       {store.Set(key("a"), nested(store.MaxDepth+1))},
	} {
		err := store.CheckWrites(writes)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		require.NotContains(t, err.Error(), "ilse", "an error repeats no value and no name")
	}
}

func TestCheckQueryAcceptsWhatAStoreCanAnswerAndNothingElse(t *testing.T) {
	t.Parallel()
	long, none := strings.Repeat("x", store.MaxIDBytes), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	due, newest := &store.Due{Field: "at", Until: noon}, &store.Newest{Field: "at"}
	valid := map[string]store.Query{
		"a page":                     {Limit: store.MaxPage},
		"a page behind an id":        {IDPrefix: "a-", After: store.Cursor{ID: "a-1"}},
		"a page of equals":           {Equal: map[string]any{"s": "", "b": true, "i": int64(1), "t": time.Unix(0, 0)}},
		"a page behind a longest id": {IDPrefix: long[:1400], After: store.Cursor{ID: long}},
		"what is due":                {Due: due},
		"what is due and equals":     {Due: due, Equal: map[string]any{"s": ""}},
		"a text in a list":           {Contains: map[string]string{"l": ""}, IDPrefix: "a", After: store.Cursor{ID: "a-1"}},
		"the newest":                 {Newest: &store.Newest{Field: "at", Until: noon}, After: store.Cursor{At: noon, ID: "a"}},
	}
	wrong := map[string]store.Query{
		"no limit":                    {Limit: -1},
		"a limit that is too high":    {Limit: store.MaxPage + 1},
		"a prefix that is too long":   {IDPrefix: long + "x"},
		"a reserved prefix":           {IDPrefix: "__x__"},
		"a slash in the prefix":       {IDPrefix: "a/"},
		"a comparison with a float":   {Equal: map[string]any{"f": 1.5}},
		"a comparison with a map":     {Equal: map[string]any{"m": map[string]any{}}},
		"a comparison with non-UTF-8": {Equal: map[string]any{"s": "\xff"}},
		"a name that is not UTF-8":    {Equal: map[string]any{"\xff": "s"}},
		"what is due, of no field":    {Due: &store.Due{Until: noon}},
		"what is due behind an id":    {Due: due, After: store.Cursor{ID: "a"}},
		"what is due of a prefix":     {Due: due, IDPrefix: "a"},
		"texts in two lists":          {Contains: map[string]string{"l": "a", "m": "b"}},
		"non-UTF-8 in a list":         {Contains: map[string]string{"l": "\xff"}},
		"a text in a list, when due":  {Contains: map[string]string{"l": "a"}, Due: due},
		"the newest of no field":      {Newest: &store.Newest{}},
		"the newest of a prefix":      {Newest: newest, IDPrefix: "a"},
		"the newest behind no time":   {Newest: newest, After: store.Cursor{At: none, ID: "a"}},
	}
	for name, query := range valid {
		query.Collection, query.Limit = "things", cmp.Or(query.Limit, 1)
		require.NoError(t, store.CheckQuery(query), name)
	}
	for name, query := range wrong {
		query.Collection, query.Limit = "things", max(cmp.Or(query.Limit, 1), 0)
		require.ErrorIs(t, store.CheckQuery(query), store.ErrInvalid, name)
	}
	require.ErrorIs(t, store.CheckQuery(store.Query{Limit: 1}), store.ErrInvalid, "no collection")
}

// nested returns fields with maps in them, depth levels in all.
func nested(depth int) map[string]any {
	fields := map[string]any{}
	for range depth - 1 {
		fields = map[string]any{"m": fields}
	}
	return fields
}
