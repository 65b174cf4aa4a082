package contract

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
)

// projectionOf is the allow-list that the tags of a type are compiled to.
func projectionOf[T any]() *pii.Projection {
	return compile(reflect.TypeFor[T]()).project()
}

func TestTheWordOfATagIsTheRule(t *testing.T) {
	t.Parallel()
	p := projectionOf[struct {
		ID     string   `json:"id,omitempty" validate:"omitempty,id"`
		Flake  string   `json:"flake" validate:"flake"`
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
	}]()
	require.Equal(t, map[string]pii.Rule{
		"id": pii.ID, "flake": pii.Flake, "uid": pii.UID, "type": pii.Code, "code": pii.Code, "at": pii.Time,
		"unit": pii.Currency, "sum": pii.Amount, "minor": pii.Integer, "tags[]": pii.Code, "nested.n": pii.Quantity,
	}, p.Rules())
	for name, make := range map[string]func(){
		"a field without a JSON name": func() {
			projectionOf[struct {
				ID string `validate:"id"`
			}]()
		},
		"a fraction": func() {
			projectionOf[struct {
				N float64 `json:"n"`
			}]()
		},
		"a map, whose names anyone types": func() {
			projectionOf[struct {
				M map[string]string `json:"m" validate:"id"`
			}]()
		},
	} {
		require.Panics(t, make, name)
	}
}

func TestTheTagsSayWhatIsOptional(t *testing.T) {
	t.Parallel()
	type inner struct {
		ID string `json:"id" validate:"required,id"`
		At string `json:"at,omitempty" validate:"omitempty,timestamp"`
	}
	p := projectionOf[struct {
		ID     string  `json:"id" validate:"required,id"`
		Odd    string  `json:"odd,omitempty" validate:"required,id"`
		Status string  `json:"status,omitempty" validate:"omitempty,code"`
		Sum    string  `json:"sum,omitempty" validate:"omitempty,amount" pii:"strict"`
		N      int64   `json:"n,omitzero" validate:"min=0"`
		M      int64   `json:"m" validate:"min=0"`
		Inner  *inner  `json:"inner,omitempty"`
		Strict *inner  `json:"strict,omitempty" pii:"strict"`
		All    []inner `json:"all,omitempty" validate:"omitempty,dive"`
	}]()
	for _, in := range []string{`{"status":5}`, `{"n":"x"}`, `{"inner":"x"}`, `{"inner":{"at":5}}`, `{"all":"x"}`, `{"all":[{"at":5}]}`, `{"strict":{"at":5}}`} {
		dropped, err := minimize(t, p, in)
		require.NoError(t, err, in)
		require.Len(t, dropped, 1, in)
	}
	for _, in := range []string{`{"id":5}`, `{"odd":5}`, `{"sum":5}`, `{"m":"x"}`, `{"inner":{"id":5}}`, `{"strict":"x"}`, `{"all":["x"]}`, `{"all":[{"id":5}]}`} {
		dropped, err := minimize(t, p, in)
		require.Error(t, err, in)
		require.Empty(t, dropped, in)
	}
}

func TestFreeTextCannotBeDeclared(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() {
		projectionOf[struct {
			Note string `json:"note" validate:"max=100"`
		}]()
	})
}

func minimize(t *testing.T, p *pii.Projection, in string) ([]pii.Violation, error) {
	t.Helper()
	d, err := pii.Parse([]byte(in))
	require.NoError(t, err)
	_, dropped, err := p.Minimize(nil, d)
	return dropped, err
}
