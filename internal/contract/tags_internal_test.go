package contract

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/pii"
)

// projectionOf is the allow-list that the tags of a type are compiled to.
func projectionOf(of reflect.Type) *pii.Projection {
	return compile(of, "", nil).project()
}

func TestWordOfATagIsItsRule(t *testing.T) {
	t.Parallel()
	p := projectionOf(reflect.TypeFor[struct {
		ID     string   `json:"id,omitempty" validate:"omitempty,id"`
		UID    string   `json:"uid" validate:"uid"`
		Type   string   `json:"type" validate:"required,event_type"`
		Code   string   `json:"code" validate:"code"`
		At     string   `json:"at" validate:"timestamp"`
		Unit   string   `json:"unit" validate:"currency"`
		Sum    string   `json:"sum" validate:"amount"`
		Minor  int64    `json:"minor" validate:"max=10"`
		Tags   []string `json:"tags" validate:"max=9,dive,code"`
		Nested *struct {
			N int64 `json:"n" validate:"min=1"`
		} `json:"nested"`
	}]())
	require.Equal(t, map[string]pii.Rule{
		"id": pii.ID, "uid": pii.UID, "type": pii.Code, "code": pii.Code, "at": pii.Time,
		"unit": pii.Currency, "sum": pii.Amount, "minor": pii.Integer, "tags[]": pii.Code, "nested.n": pii.Quantity,
	}, p.Rules())
	for name, of := range map[string]reflect.Type{
		"a field without a JSON name": reflect.TypeFor[struct {
			ID string `validate:"id"`
		}](),
		"free text": reflect.TypeFor[struct {
			Note string `json:"note" validate:"max=100"`
		}](),
		"a fraction": reflect.TypeFor[struct {
			N float64 `json:"n"`
		}](),
		"a map, whose names may be anything": reflect.TypeFor[struct {
			M map[string]string `json:"m" validate:"id"`
		}](),
	} {
		require.Panics(t, func() { projectionOf(of) }, name)
	}
}

func TestTagsMarkOptionalMembers(t *testing.T) {
	t.Parallel()
	type inner struct {
		ID string `json:"id" validate:"required,id"`
		At string `json:"at,omitempty" validate:"omitempty,timestamp"`
	}
	p := projectionOf(reflect.TypeFor[struct {
		ID     string  `json:"id" validate:"required,id"`
		Odd    string  `json:"odd,omitempty" validate:"required,id"`
		Status string  `json:"status,omitempty" validate:"omitempty,code"`
		Sum    string  `json:"sum,omitempty" validate:"omitempty,amount" pii:"strict"`
		N      int64   `json:"n,omitzero" validate:"min=0"`
		M      int64   `json:"m" validate:"min=0"`
		Inner  *inner  `json:"inner,omitempty"`
		Strict *inner  `json:"strict,omitempty" pii:"strict"`
		All    []inner `json:"all,omitempty" validate:"omitempty,dive"`
	}]())
	for in, left := range map[string]bool{
		`{"status":5}`: true, `{"n":"x"}`: true, `{"inner":"x"}`: true, `{"inner":{"at":5}}`: true,
		`{"all":"x"}`: true, `{"all":[{"at":5}]}`: true, `{"strict":{"at":5}}`: true,
		`{"id":5}`: false, `{"odd":5}`: false, `{"sum":5}`: false, `{"m":"x"}`: false, `{"inner":{"id":5}}`: false,
		`{"strict":"x"}`: false, `{"all":["x"]}`: false, `{"all":[{"id":5}]}`: false,
	} {
		d := filetest.Must(pii.Parse([]byte(in)))(t)
		_, dropped, err := p.Minimize(nil, nil, d)
		require.Equal(t, left, err == nil, in)
		require.Equal(t, left, len(dropped) == 1, in)
	}
}
