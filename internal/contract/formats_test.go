package contract_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
)

// parcel is the body of a format that the program does not have.
type parcel struct {
	Number string `json:"number" validate:"required,id"`
	Kind   string `json:"kind" validate:"required,event_type"`
	Sent   string `json:"sent" validate:"required,timestamp"`
	Rev    int64  `json:"rev" validate:"min=1,max=9"`
	About  any    `json:"about"`
}

func TestNewRowOfTheTableIsAFormat(t *testing.T) {
	t.Parallel()
	set := declared(t, "parcels", contract.Format{
		Name: "parcel.v1", Marks: []string{"number", "kind"}, Head: reflect.TypeFor[parcel](), Content: "about",
		ID: "number", Type: "kind", Time: "sent", Version: "rev", Correlation: []string{"about.order_id"},
		Repeated: map[string][]string{contract.AttrOrderID: {"about.order_id"}}, Hashed: []string{"kind", "about"},
		Posted: []contract.Posted{
			{Name: "no", Path: "number", Needed: true}, {Name: "about", Path: "about", Needed: true},
		},
	})
	data := []byte(`{"number":"p1","kind":"parcel.sent","sent":"2026-03-02T10:15:00Z","rev":2,` +
		`"about":{"grams":70,"order_id":"o1","things":[{"product_id":"x"}]}}`)
	require.Equal(t, "parcel.v1", set.Detect(nil, data))
	m := contract.Message{
		Data:       data,
		Attributes: map[string]string{"event_id": "p1", "event_type": "parcel.sent", "ordering_key": "o1"},
	}
	body, attributes := filetest.Both(set.Receive("parcel.v1", []string{"order_id"}, m, time.Time{}))(t)
	require.NoError(t, body.Validate())
	require.NoError(t, body.CheckAttributes(attributes))
	id, eventType := body.Identity()
	require.Equal(t, []any{"p1", "parcel.sent", int64(2)}, []any{id, eventType, body.Contract().Version})
	require.Equal(t, "o1", body.OrderingKey([]string{"subject"}, nil),
		"its subject is its required id")
	made := body.Attributes()
	require.Equal(t, []string{"parcel.v1", "o1", "o1"},
		[]string{made.Contract, made.OrderID, made.CorrelationID})

	posted := filetest.Must(body.Post("key-1", "acme"))(t)
	require.JSONEq(t, `{"event_id":"key-1","tenant":"acme","no":"p1","about":{"order_id":"o1","grams":70,`+
		`"things":[{"product_id":"x"}]}}`, string(posted))
	hash := filetest.Must(body.PayloadHash())(t)
	other, err := set.Decode("parcel.v1", []byte(`{"kind":"parcel.sent","number":"p2","rev":2,`+
		`"sent":"2026-03-02T10:15:00Z","about":{"order_id":"o1","things":[{"product_id":"x"}],"grams":70}}`))
	require.NoError(t, err)
	require.Equal(t, hash, filetest.Must(other.PayloadHash())(t), "the order of members does not matter")

	type about struct {
		OrderID string `json:"order_id"`
		Grams   int64  `json:"grams"`
		Things  []struct {
			ProductID string `json:"product_id"`
		} `json:"things"`
	}
	require.NoError(t, set.Takes("parcel.v1", "parcel.sent", reflect.TypeFor[about]()))
	require.Equal(t, int64(70), filetest.Must(contract.As[about](body))(t).Grams)

	require.Contains(t, set.Schemas(), "parcel.v1.json")
	require.NoError(t, filetest.ErrorOf(body.Contract().Projection().Append(nil, data)))
}

func TestGoTypesFitTheirDeclarations(t *testing.T) {
	t.Parallel()
	type invoice struct {
		InvoiceID  string `json:"invoice_id"`
		CustomerID string `json:"customer_id"`
		Amount     string `json:"amount"`
		Currency   string `json:"currency"`
		TaxAmount  string `json:"tax_amount"`
	}
	type short struct {
		InvoiceID int64 `json:"invoice_id"`
	}
	types := map[string]reflect.Type{}
	for _, of := range []reflect.Type{
		reflect.TypeFor[*contract.Payment](), reflect.TypeFor[*contract.Envelope](),
		reflect.TypeFor[contract.Payload](), reflect.TypeFor[contract.Body](), reflect.TypeFor[*contract.Event](),
		reflect.TypeFor[invoice](), reflect.TypeFor[*invoice](), reflect.TypeFor[short](),
	} {
		types[of.String()] = of
	}
	for _, test := range readBodies(t).Fits {
		require.Contains(t, types, test.As)
		err := contracts().Takes(test.Format, test.Type, types[test.As])
		if test.Want == "" {
			require.NoError(t, err, test.What)
		} else {
			require.ErrorContains(t, err, test.Want, test.What)
		}
	}
	for _, eventType := range []string{
		contract.ActionInitial, contract.ActionRenewal, contract.ActionCancellation, contract.ActionTrial,
		contract.ActionTrialCompleted, contract.ActionTrialCanceled,
	} {
		c := filetest.Must(contracts().Find(contract.EnvelopeV1, []byte(`{"action":"`+eventType+`"}`)))(t)
		require.Len(t, c.Projection().Rules(), 7+reflect.TypeFor[contract.Payload]().NumField(),
			"each member of the type is declared")
	}
}

func TestEmissionIsHeldToItsDeclaration(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	type data struct {
		OrderID string `json:"order_id,omitempty"`
	}
	made := contract.Of(
		&contract.Event{Type: "order.shipped", Version: 1, Producer: "billhook", Data: data{"o1"}})
	body, m, err := contracts().Compose(made,
		contract.Stamp{ID: "e1", Tenant: "acme", RoutingKey: "order.shipped", OrderingKey: "o1", At: at})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"e1","type":"order.shipped","timestamp":"2026-03-02T10:15:00Z","version":1,`+
		`"producer":"billhook","data":{"order_id":"o1"}}`, string(m.Data))
	require.Equal(t, map[string]string{
		"event_id": "e1", "event_type": "order.shipped", "ordering_key": "o1", "order_id": "o1",
		"contract": "message.v1", "correlation_id": "e1",
		"tenant": "acme", "routing_key": "order.shipped", "first_published_at": "2026-03-02T10:15:00Z",
	}, m.Attributes)
	require.NoError(t, body.CheckAttributes(m.Attributes))
	id, _ := made.Identity()
	require.Empty(t, id, "the handler's body is not changed")
	for name, bad := range map[string]contract.Event{
		"an undeclared type":    {Type: "order.lost", Version: 1, Data: data{"o1"}},
		"an undeclared version": {Type: "order.shipped", Version: 9, Data: data{"o1"}},
		"a missing member":      {Type: "order.shipped", Version: 1, Data: data{}},
		"another member": {
			Type: "order.shipped", Version: 1, Data: map[string]string{"order_id": "o1", "email": "ilse@example.org"},
		},
	} {
		_, _, err := contracts().Compose(contract.Of(&bad), contract.Stamp{ID: "e1", At: at})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "ilse")
	}
}

func TestEachContractHasItsOwnIDAndSchema(t *testing.T) {
	t.Parallel()
	set := declared(t, "versions")
	var ids []string
	for _, c := range set.All() {
		ids = append(ids, c.ID())
		require.Equal(t, c.Format == contract.PaymentV1, c.Members == nil)
		require.Equal(t, c.Format == contract.PaymentV1 || c.Format == contract.EnvelopeV1, c.Type == "#")
		found, ok := set.Contract(c.ID())
		require.True(t, ok)
		require.Same(t, c, found)
	}
	require.Equal(t, []string{
		"payment.v1", "envelope.v1:#:1", "message.v1:order.created:1", "message.v1:order.created:2",
		"message.v1:*.reverted:1",
	}, ids)
	_, ok := set.Contract("message.v1:order.created:3")
	require.False(t, ok)
	require.Empty(t, (*contract.Set)(nil).All())

	for id, want := range map[string][]string{
		"message.v1:order.created:2": {`"const": "order.created"`, `"const": 2`, `"shop_id"`},
		"message.v1:*.reverted:1":    {`"pattern": "^[^.]+\\.reverted$"`, `"const": 1`, `"reverts"`},
		contract.PaymentV1:           {`"eventType"`},
	} {
		c, _ := set.Contract(id)
		text := set.Schema(c)
		for _, part := range append(want, `"title": "`+id+`"`) {
			require.Contains(t, string(text), part)
		}
		require.NotContains(t, string(text), `"payment_id"`, "of this contract alone")
	}
}
