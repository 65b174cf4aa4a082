package store_test

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
			store.Create(key("a"), map[string]any{"n": int64(1)}), store.Set(key("b"), nil),
			store.Replace(key("c"), 7, nil),
			store.Increment(key("d"), map[string]int64{"n": 1}, map[string]any{"at": time.Unix(0, 0)}),
			store.Delete(key("e"), 0), store.Delete(key("f"), 3),
		},
		"every kind of value": {store.Set(key("a"), map[string]any{
			"s": "ů", "b": true, "i": int64(-1), "t": time.Unix(1, 0), "z": nil,
			"m": map[string]any{"in": map[string]any{"deep": "x"}},
			"l": []any{"x", map[string]any{"l": []any{int64(1)}}},
		})},
		"as many writes as fit":       many,
		"an id of the longest length": {store.Set(key(strings.Repeat("x", store.MaxIDBytes)), nil)},
		"names that almost look kept": {store.Set(key("__x"), map[string]any{"x__": "", "__": ""})},
		"one id in two collections": {
			store.Set(key("a"), nil), store.Set(store.Key{Collection: "others", ID: "a"}, nil),
		},
		"the deepest document": {store.Set(key("a"), nested(store.MaxDepth))},
	} {
		require.NoError(t, store.CheckWrites(writes), name)
	}
	fields := func(value any) []store.Write {
		return []store.Write{store.Set(key("a"), map[string]any{"x": value})}
	}
	for name, writes := range map[string][]store.Write{
		"no writes":       nil,
		"too many writes": make([]store.Write, store.MaxWrites+1),
		"two writes to one document": {
			store.Set(key("a"), nil), store.Increment(key("a"), map[string]int64{"n": 1}, nil),
		},
		"no operation":                {{Key: key("a")}},
		"an operation nobody knows":   {{Op: 99, Key: key("a")}},
		"an update without a version": {{Op: store.OpUpdate, Key: key("a")}},
		"an increment of nothing":     {store.Increment(key("a"), nil, map[string]any{"x": ""})},
		"an increment of what it also sets": {
			store.Increment(key("a"), map[string]int64{"x": 1}, map[string]any{"x": int64(1)}),
		},
		"an increment of a reserved name": {store.Increment(key("a"), map[string]int64{"__x__": 1}, nil)},
		"no collection":                   {store.Set(store.Key{ID: "a"}, nil)},
		"no id":                           {store.Set(key(""), nil)},
		"an id with a slash":              {store.Set(key("a/b"), nil)},
		"an id with a control character":  {store.Set(key("a\nb"), nil)},
		"an id that is too long":          {store.Set(key(strings.Repeat("x", store.MaxIDBytes+1)), nil)},
		"an id of a dot":                  {store.Set(key("."), nil)},
		"an id of two dots":               {store.Set(key(".."), nil)},
		"a reserved id":                   {store.Set(key("__x__"), nil)},
		"an id that is not UTF-8":         {store.Set(key("a\xff"), nil)},
		"a time before the year 1":        fields(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a time after the year 9999":      fields(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a float":                         fields(1.5),
		"an int":                          fields(1),
		"bytes":                           fields([]byte("x")),
		"a float in a list":               fields([]any{1.5}),
		"a float in a map":                fields(map[string]any{"y": 1.5}),
		"a string that is not UTF-8":      fields("ilse\xff"),
		"a list within a list":            fields([]any{[]any{"x"}}),
		"a reserved name":                 fields(map[string]any{"__ilse__": ""}),
		"an empty name":                   fields(map[string]any{"": ""}),
		"a name that is not UTF-8":        fields(map[string]any{"a\xff": ""}),
		"a document that is too deep":     {store.Set(key("a"), nested(store.MaxDepth+1))},
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
		"a page":              {Limit: store.MaxPage},
		"a page behind an id": {IDPrefix: "a-", After: store.Cursor{ID: "a-1"}},
		"a page of equals":    {Equal: map[string]any{"s": "", "b": true, "i": int64(1), "t": time.Unix(0, 0)}},
		"a page behind a longest id": {
			IDPrefix: long[:1400], After: store.Cursor{ID: long},
		},
		"what is due": {Due: due},
		"what is due and equals": {
			Due: due, Equal: map[string]any{"s": ""},
		},
		"a text in a list": {
			Contains: map[string]string{"l": ""}, IDPrefix: "a", After: store.Cursor{ID: "a-1"},
		},
		"the newest": {Newest: &store.Newest{Field: "at", Until: noon}, After: store.Cursor{At: noon, ID: "a"}},
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

func nested(depth int) map[string]any {
	fields := map[string]any{}
	for range depth - 1 {
		fields = map[string]any{"m": fields}
	}
	return fields
}

type stage string

type inner struct {
	Data       []byte            `store:"data,required"`
	Attributes map[string]string `store:"attributes,required"`
}

type filter struct {
	Queue string    `store:"queue,required"`
	Since time.Time `store:"since,omitzero"`
}

type thing struct {
	filter  `store:",inline"`
	Filter  filter                       `store:"of"`
	Stage   stage                        `store:"stage,strict"`
	Seq     int                          `store:"seq"`
	Amount  int64                        `store:"amount,omitzero"`
	Force   bool                         `store:"force"`
	At      time.Time                    `store:"at,strict,omitzero"`
	Closed  *time.Time                   `store:"closed_at,omitzero"`
	Names   []string                     `store:"names,omitzero"`
	Message *inner                       `store:"message,omitzero"`
	Before  map[string]any               `store:"before,omitzero"`
	Steps   []filter                     `store:"steps,omitzero"`
	Data    []byte                       `store:"data,omitzero,strict"`
	Sums    map[string]map[string]filter `store:"sums,omitzero"`
	Private string
}

func TestAStructIsStoredByItsTags(t *testing.T) {
	t.Parallel()
	east := time.Date(2026, 11, 22, 12, 0, 0, 123_456_789, time.FixedZone("east", 3600))
	utc := time.Date(2026, 11, 22, 11, 0, 0, 123_456_000, time.UTC)
	least := map[string]any{
		"queue": "", "of": map[string]any{"queue": ""}, "stage": "", "seq": int64(0), "force": false,
	}
	for name, test := range map[string]struct {
		thing thing
		want  map[string]any // beside the least
	}{
		"the zero value": {
			thing{Private: "x", Names: []string{}, At: time.Time{}.In(time.FixedZone("east", 3600))}, nil,
		},
		"texts, numbers and bools": {
			thing{Stage: "open", Seq: -1, Amount: 2, Force: true},
			map[string]any{"stage": "open", "seq": int64(-1), "amount": int64(2), "force": true},
		},
		"times in UTC and microseconds": {
			thing{At: east, Closed: &east}, map[string]any{"at": utc, "closed_at": utc},
		},
		"a list": {thing{Names: []string{"a", ""}}, map[string]any{"names": []any{"a", ""}}},
		"a list of structs": {
			thing{Steps: []filter{{Queue: "q"}, {Queue: "r", Since: utc}}},
			map[string]any{"steps": []any{map[string]any{"queue": "q"}, map[string]any{"queue": "r", "since": utc}}},
		},
		"a list of structs that is empty": {thing{Steps: []filter{}}, nil},
		"an inline struct and one beside": {
			thing{filter: filter{Queue: "q", Since: utc}, Filter: filter{Queue: "r"}},
			map[string]any{"queue": "q", "since": utc, "of": map[string]any{"queue": "r"}},
		},
		"bytes that are text":           {thing{Data: []byte("ů")}, map[string]any{"data": "ů"}},
		"bytes that are none":           {thing{Data: []byte("\xff")}, map[string]any{"data_base64": "/w=="}},
		"bytes that are empty, not nil": {thing{Data: []byte{}}, map[string]any{"data": ""}},
		"a map that is empty, not nil": {
			thing{Before: map[string]any{}}, map[string]any{"before": map[string]any{}},
		},
		"structs in maps": {
			thing{Sums: map[string]map[string]filter{"a": {"b": {Queue: "q"}}, "c": {}}},
			map[string]any{
				"sums": map[string]any{"a": map[string]any{"b": map[string]any{"queue": "q"}}, "c": map[string]any{}},
			},
		},
		"a struct behind a pointer": {
			thing{Message: &inner{Attributes: map[string]string{"a": "b"}}},
			map[string]any{"message": map[string]any{"data": "", "attributes": map[string]any{"a": "b"}}},
		},
	} {
		want := maps.Clone(least)
		maps.Copy(want, test.want)
		fields := store.Encode(&test.thing)
		require.Equal(t, want, fields, name)
		require.NoError(t, store.CheckWrites([]store.Write{store.Create(key("a"), fields)}))
		var back thing
		require.NoError(t, store.Decode(fields, &back))
		require.Equal(t, fields, store.Encode(&back), name)
	}
}

func TestWhatDecidesMustBeReadable(t *testing.T) {
	t.Parallel()
	whole := map[string]any{
		"queue": "q", "of": map[string]any{"queue": "r"}, "stage": "open", "seq": int64(1), "force": true,
		"data": "x",
	}
	for name, test := range map[string]struct {
		field string
		value any // nil: it is missing
		err   bool
	}{
		"all of it":                            {"queue", "q", false},
		"a required text that is missing":      {"queue", nil, true},
		"a required text that is a number":     {"queue", int64(1), true},
		"a strict text that is missing":        {"stage", nil, false},
		"a strict text that is a number":       {"stage", int64(1), true},
		"a strict time that is missing":        {"at", nil, false},
		"a strict time that is a text":         {"at", "2026", true},
		"strict bytes that are missing":        {"data", nil, false},
		"strict bytes that are a number":       {"data", int64(1), true},
		"a number that is a text":              {"seq", "1", false},
		"a bool that is a text":                {"force", "true", false},
		"a list that is a text":                {"names", "a", false},
		"a list of structs that is a text":     {"steps", "a", false},
		"a struct that is a text":              {"of", "r", false},
		"a struct without what it requires":    {"of", map[string]any{}, false},
		"a message that is no map":             {"message", "x", false},
		"a field that the struct knows not of": {"later", int64(7), false},
	} {
		fields := maps.Clone(whole)
		if fields[test.field] = test.value; test.value == nil {
			delete(fields, test.field)
		}
		var got thing
		err := store.Decode(fields, &got)
		if test.err {
			require.ErrorIs(t, err, store.ErrUnreadable, name)
			require.ErrorContains(t, err, "field "+test.field)
			continue
		}
		require.NoError(t, err, name)
		if _, known := store.Encode(&thing{})[test.field]; !known {
			require.NotContains(t, store.Encode(&got), test.field, name)
		}
	}
}

func TestWhatDoesNotDecideIsLeftOutWhereItIsNotReadable(t *testing.T) {
	t.Parallel()
	var got thing
	require.NoError(t, store.Decode(map[string]any{
		"queue": "q", "names": []any{"a", int64(1), "b"},
		"message": map[string]any{"data": "x", "attributes": map[string]any{"a": int64(1)}},
		"sums":    map[string]any{"a": "x", "b": map[string]any{"c": map[string]any{"queue": "q"}}},
	}, &got))
	require.Equal(t, map[string]map[string]filter{"b": {"c": {Queue: "q"}}}, got.Sums)
	require.Equal(t, []string{"a", "b"}, got.Names)
	require.Nil(t, got.Message, "a message that is not whole is none")
	require.ErrorIs(t, store.Decode(map[string]any{"queue": "q", "data_base64": "?"}, &got), store.ErrUnreadable)
}

func TestBytesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := inner{
			Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"), Attributes: rapid.MapOf(rapid.String(),
				rapid.String()).Draw(t, "attributes"),
		}
		var got inner
		if err := store.Decode(store.Encode(&want), &got); err != nil {
			t.Fatal(err)
		}
		require.Equal(t, want.Data, got.Data)
		require.Equal(t, want.Attributes, got.Attributes)
	})
}

func TestATypeThatCannotBeStoredPanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() {
		store.Encode(&struct {
			Price float64 `store:"price"`
		}{})
	})
}
