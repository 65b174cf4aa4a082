package console_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

type box struct {
	ID     string         `json:"id" show:"Box,id"`
	Kept   time.Time      `json:"kept" show:"Kept"`
	Inside inside         `json:"inside" show:"*"`
	Sold   *inside        `json:"sold" show:"Sold"`
	Data   jsontext.Value `json:"data" show:"Data"`
	Owed   *int64         `json:"owed" show:"Owed" in:"unit"`
	Unit   string         `json:"unit"`
	Users  []string       `json:"users" show:"Users" link:"search"`
}

type inside struct {
	Price    int64  `json:"price" show:"Price" in:"currency"`
	Currency string `json:"currency"`
}

type boxOf struct {
	ID    string          `json:"-" path:"id" validate:"required" help:"box"`
	Since console.Moment  `json:"-" query:"since" help:"since"`
	Full  bool            `json:"full" help:"full"`
	Size  int64           `json:"size" validate:"min=1,max=9" help:"size"`
	Files *jsontext.Value `json:"files" help:"files"`
}

type changed struct {
	boxOf
	console.Change
}

type bodied struct {
	ID string `json:"ID" path:"id" help:"box"`
}

func row[Request any](name, path string, needs console.Needs) func() {
	return func() {
		all := []console.Operation{
			console.New(console.Row{Name: name, Path: path, Needs: needs, Before: "boxes look"},
				func(context.Context, audit.Author, Request) (box, error) { return box{}, nil }),
		}
		console.NewCatalog(all, all)
	}
}

func TestARowThatCannotBeServedIsAMistakeAtTheStart(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(){
		"console: a row needs a name, a method and a path: boxes show": row[struct{}]("boxes show", "/boxes",
			console.Look),
		"console: a row needs a name, a method and a path: ": row[struct{}]("", "GET /boxes",
			console.Look),
		"console: boxes show: a body must not have id": row[bodied]("boxes show",
			"GET /boxes/{id}", console.Look),
		"console: boxes show has no {id} in its path": row[boxOf]("boxes show", "GET /boxes",
			console.Look),
		"console: a change embeds Change, and nothing else does: boxes set": row[boxOf]("boxes set",
			"PUT /boxes/{id}", console.Reason),
		"console: a change embeds Change, and nothing else does: boxes show": row[changed]("boxes show",
			"GET /boxes/{id}", console.Look),
		"console: two operations are called boxes show": row[boxOf]("boxes show",
			"GET /boxes/{id}", console.Look),
		"console: boxes show names boxes look, which is no operation": func() {
			console.NewCatalog([]console.Operation{show("boxes look")})
		},
		"console: a text cannot become a map[string]string": func() {
			_ = console.Field{Type: reflect.TypeFor[map[string]string]()}.Check("x")
		},
	} {
		require.PanicsWithValue(t, name, made)
	}
}

func show(before string) console.Operation {
	return console.New(console.Row{Name: "boxes show", Path: "GET /v1/boxes/{id}", Before: before},
		func(context.Context, audit.Author, boxOf) (box, error) { return box{}, nil })
}

func TestAnAddressLeadsToTheLookThatItAsksFor(t *testing.T) {
	t.Parallel()
	c := console.NewCatalog([]console.Operation{show("")})
	o, in, found := c.At("/v1/boxes/a%2Fb?since=7d")
	require.True(t, found)
	require.Equal(t, []string{"boxes show", "a/b", "7d", "/v1/boxes/a%2Fb?since=7d"},
		[]string{o.Name, in.Path["id"], in.Query.Get("since"), o.URL(in)})
	for _, other := range []string{"/v1/boxes", "/v1/boxes/a/b", "/v1/shelves/a", ""} {
		_, _, found = c.At(other)
		require.False(t, found, other)
	}
}

func TestAValueIsShownAsPeopleReadIt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 7000, time.UTC)
	owed := int64(1999)
	full := &box{
		ID: "b1", Kept: at, Inside: inside{1250, "EUR"}, Data: jsontext.Value(`{"a":1}`), Owed: &owed,
		Unit: "points", Users: []string{"u1", "u2"},
	}
	texts := filetest.Map(show("").Columns, func(c console.Column) string {
		return c.Label + " " + c.Text(full) + " " + c.Text(&box{})
	})
	require.Equal(t, []string{
		"Box b1 ", "Kept 2026-11-22T12:00:00Z ", "Price 12.50 EUR 0", "Sold  ", "Data {\n  \"a\": 1\n} ",
		"Owed 1999 points ", "Users u1, u2 ",
	}, texts)
	require.Equal(t, "u1", show("").Columns[6].Inside[0].Text(full.Users[0]), "each leads somewhere")
	for name, want := range map[string]string{
		"id": "b1", "kept": "2026-11-22T12:00:00.000007Z", "inside.currency": "EUR", "owed": "1999",
		"inside.colour": "", "sold.currency": "", "colour": "",
	} {
		require.Equal(t, want, console.Member(full, name), name)
	}
	require.Empty(t, console.Member(nil, "id"))
	for value, want := range map[any]string{
		console.Seconds(0): "0s", console.Seconds(59): "59s", console.Seconds(60): "1m",
		console.Seconds(3661): "1h 1m", console.Seconds(90000): "1d 1h", 0.5: "0.5", true: "yes", false: "no",
		store.Version(3): "3",
	} {
		require.Equal(t, want, console.Text(reflect.ValueOf(value)))
	}
	require.Equal(t, "a 1, b x", console.Text(reflect.ValueOf(map[string]any{"b": "x", "a": 1})))
	require.Equal(t, `"x", a 1`, console.Text(reflect.ValueOf([]any{[]byte("x"), map[string]string{"a": "1"}})))
}

func TestATextThatAFieldDoesNotTakeIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	o := show("")
	for name, given := range map[string]string{"full": "perhaps", "size": "many"} {
		_, err := o.Input(func(f console.Field) (string, bool) { return given, f.Name == name })
		require.ErrorContains(t, err, "refused", name)
	}
	in := filetest.Must(o.Input(func(f console.Field) (string, bool) {
		return map[string]string{
			"id": "b1", "since": "7d", "full": "true", "size": "12", "files": `{"a":[1]}`,
		}[f.Name], true
	}))(t)
	require.JSONEq(t, `{"full":true,"size":12,"files":{"a":[1]}}`, string(in.Body))
	_, err := o.Call(t.Context(), audit.Author{Proof: audit.ThisMachine, Name: "ada"}, in)
	var refused *console.Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, console.Refusal{
		Kind: console.Refused, Code: "refused", Detail: "The member size is a number from 1 to 9.",
	}, *refused)
	for _, f := range o.Fields {
		require.Equal(t, f.Name != "files", f.Typed(), f.Name)
		most, bounded := f.Rule("max")
		require.Equal(t, f.Name == "size", bounded && most == "9", f.Name)
		if f.Name == "since" {
			require.NoError(t, f.Check("36h"))
			require.ErrorContains(t, f.Check("soon"), "an age such as 36h or 7d")
		}
	}
}
