package store_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/store"
)

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
	least := map[string]any{"queue": "", "of": map[string]any{"queue": ""}, "stage": "", "seq": int64(0), "force": false}
	for name, test := range map[string]struct {
		thing thing
		want  map[string]any // beside the least
	}{
		"the zero value":                  {thing{Private: "x", Names: []string{}, At: time.Time{}.In(time.FixedZone("east", 3600))}, nil},
		"texts, numbers and bools":        {thing{Stage: "open", Seq: -1, Amount: 2, Force: true}, map[string]any{"stage": "open", "seq": int64(-1), "amount": int64(2), "force": true}},
		"times in UTC and microseconds":   {thing{At: east, Closed: &east}, map[string]any{"at": utc, "closed_at": utc}},
		"a list":                          {thing{Names: []string{"a", ""}}, map[string]any{"names": []any{"a", ""}}},
		"a list of structs":               {thing{Steps: []filter{{Queue: "q"}, {Queue: "r", Since: utc}}}, map[string]any{"steps": []any{map[string]any{"queue": "q"}, map[string]any{"queue": "r", "since": utc}}}},
		"a list of structs that is empty": {thing{Steps: []filter{}}, nil},
		"an inline struct and one beside": {thing{filter: filter{Queue: "q", Since: utc}, Filter: filter{Queue: "r"}}, map[string]any{"queue": "q", "since": utc, "of": map[string]any{"queue": "r"}}},
		"bytes that are text":             {thing{Data: []byte("ů")}, map[string]any{"data": "ů"}},
		"bytes that are none":             {thing{Data: []byte("\xff")}, map[string]any{"data_base64": "/w=="}},
		"bytes that are empty, not nil":   {thing{Data: []byte{}}, map[string]any{"data": ""}},
		"a map that is empty, not nil":    {thing{Before: map[string]any{}}, map[string]any{"before": map[string]any{}}},
		"structs in maps": {
			thing{Sums: map[string]map[string]filter{"a": {"b": {Queue: "q"}}, "c": {}}},
			map[string]any{"sums": map[string]any{"a": map[string]any{"b": map[string]any{"queue": "q"}}, "c": map[string]any{}}},
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
	whole := map[string]any{"queue": "q", "of": map[string]any{"queue": "r"}, "stage": "open", "seq": int64(1), "force": true, "data": "x"}
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
		"queue": "q", "names": []any{"a", int64(1), "b"}, "message": map[string]any{"data": "x", "attributes": map[string]any{"a": int64(1)}},
		"sums": map[string]any{"a": "x", "b": map[string]any{"c": map[string]any{"queue": "q"}}},
	}, &got))
	require.Equal(t, map[string]map[string]filter{"b": {"c": {Queue: "q"}}}, got.Sums)
	require.Equal(t, []string{"a", "b"}, got.Names)
	require.Nil(t, got.Message, "a message that is not whole is none")
	require.ErrorIs(t, store.Decode(map[string]any{"queue": "q", "data_base64": "?"}, &got), store.ErrUnreadable)
}

func TestBytesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := inner{Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"), Attributes: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "attributes")}
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
