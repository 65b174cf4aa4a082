package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pii"
)

func goldenOf(t testing.TB, format, name string) []byte {
	t.Helper()
	return []byte(filetest.Read(t, "testdata", format, name+".json"))
}

var contracts = sync.OnceValue(func() *contract.Set { return catalogtest.Shipped().Contracts })

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	parsed := filetest.Must(jsonschema.UnmarshalJSON(strings.NewReader(filetest.Read(t, "schema", name))))(t)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(name, parsed))
	return filetest.Must(c.Compile(name))(t)
}

func TestSchemasAreThoseOfTheContracts(t *testing.T) {
	t.Parallel()
	for name, want := range contracts().Schemas() {
		filetest.Recorded(t, string(want), "schema", name)
	}
}

func TestEachSampleBodyKeepsItsContractAndSchema(t *testing.T) {
	t.Parallel()
	for _, format := range []string{contract.PaymentV1, contract.EnvelopeV1, contract.MessageV1} {
		schema := compile(t, format+".json")
		files := filetest.Must(filepath.Glob(filepath.Join("testdata", format, "*.json")))(t)
		require.NotEmpty(t, files)
		for _, file := range files {
			data := []byte(filetest.Read(t, file))
			m, err := contracts().Decode(format, data)
			require.NoError(t, err, file)
			require.NoError(t, m.Validate(), file)
			value := filetest.Must(jsonschema.UnmarshalJSON(bytes.NewReader(data)))(t)
			require.NoError(t, schema.Validate(value), file)
			again := filetest.Must(m.Append(nil))(t)
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, data))
			require.Equal(t, compact.String(), string(again), file)
			require.Equal(t, format, contracts().Detect(nil, data))
			require.True(t, contracts().Known(format))
		}
	}
}

// change is a row of testdata/broken.yaml.
type change struct {
	What, Old, With, Want string
	GoOnly                bool
}

func TestBrokenBodyIsRefusedByItsPathsAndRules(t *testing.T) {
	t.Parallel()
	files := filetest.YAML[map[string][]change](t, "testdata", "broken.yaml")
	require.Len(t, files, 5)
	for of, changes := range files {
		format, file, _ := strings.Cut(of, "/")
		good, schema := string(goldenOf(t, format, file)), compile(t, format+".json")
		for _, c := range changes {
			body := c.With
			if c.Old != "" {
				require.Contains(t, good, c.Old)
				body = strings.Replace(good, c.Old, c.With, 1)
			}
			decoded, err := contracts().Decode(format, []byte(body))
			if err == nil {
				err = decoded.Validate()
			}
			require.EqualError(t, err, "contract: "+c.Want, c.What) // it holds no value
			if !c.GoOnly {
				value := filetest.Must(jsonschema.UnmarshalJSON(strings.NewReader(body)))(t)
				require.Error(t, schema.Validate(value), c.What)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(goldenOf(f, contract.PaymentV1, "order_paid"), "", "")
	f.Add(goldenOf(f, contract.PaymentV1, "order_refunded_partial"), "", "")
	f.Add(goldenOf(f, contract.PaymentV1, "subscription_renewed"), "", "")
	f.Add([]byte(`{"eventId":"1","data":{"order":null}}`), "", "")
	f.Add(goldenOf(f, contract.EnvelopeV1, "renewal"), "", "")
	f.Add(goldenOf(f, contract.EnvelopeV1, "trial_completed"), "e1", "trial")
	f.Add([]byte(`{"subscription_id":"s1","currency":"JPY","amount":"5"}`), "", "initial")
	f.Add([]byte(`{"payload":null}`), "", "")
	f.Add(goldenOf(f, contract.MessageV1, "order.created"), "", "")
	f.Add(goldenOf(f, contract.MessageV1, "billing.invoice.paid"), "", "")
	f.Fuzz(func(t *testing.T, data []byte, id, eventType string) {
		for _, format := range []string{contract.PaymentV1, contract.EnvelopeV1, contract.MessageV1} {
			m, _, err := contracts().Receive(format, nil, contract.Message{
				Data: data, Attributes: map[string]string{"event_id": id, "event_type": eventType},
			}, time.Unix(0, 0))
			if err != nil || m.Validate() != nil {
				continue
			}
			require.NoError(t, filetest.ErrorOf(m.PayloadHash()))
			again := filetest.Must(m.Append(nil))(t)
			require.Equal(t, m, filetest.Must(contracts().Decode(format, again))(t))
			a := m.Attributes()
			a.OrderingKey = "k"
			require.NoError(t, m.CheckAttributes(a.Map()))
			_, err = m.Contract().Projection().Append(nil, again)
			var found *pii.Error
			require.True(t, err == nil || errors.As(err, &found))
		}
	})
}

func TestBodyOfAnotherShapeIsMalformed(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", "x", "[]", `{"eventId":"1","email":"ilse@example.org"}`,
		`{"data":{"order":{"id":"1","customer":{"name":"Ilse"}}}}`,
		`{"eventId":"1","eventId":"2"}`, "{\"eventId\":\"\xff\"}",
		`{"data":{"order":{"items":[{"quantity":1.5}]}}}`, `{"data":{"order":{"items":[{"quantity":1e400}]}}}`,
	} {
		for _, format := range []string{contract.PaymentV1, contract.EnvelopeV1, contract.MessageV1} {
			decoded, err := contracts().Decode(format, []byte(body))
			var invalid *contract.Invalid // of another format, whose event type is unknown
			require.True(t, errors.Is(err, contract.ErrMalformed) ||
				(format != contract.PaymentV1 && errors.As(err, &invalid)), "%s: %v", body, err)
			require.True(t, decoded.None())
			require.NotContains(t, err.Error(), "ilse")
		}
	}
}

func TestPayloadHashCoversTheContentAndNotItsDelivery(t *testing.T) {
	t.Parallel()
	for _, test := range readBodies(t).Hashed {
		format, name, _ := strings.Cut(test.Of, "/")
		good := string(goldenOf(t, format, name))
		require.Contains(t, good, test.Old)
		var hashes []string
		for _, body := range []string{good, strings.Replace(good, test.Old, test.With, 1)} {
			decoded := filetest.Must(contracts().Decode(format, []byte(body)))(t)
			hashes = append(hashes, filetest.Must(decoded.PayloadHash())(t))
		}
		require.Regexp(t, `^sha256:[0-9a-f]{64}$`, hashes[0])
		require.Equal(t, test.Same, hashes[0] == hashes[1], test.With)
	}
}

func TestOrderingKeyOfAnEnvelopeIsItsFirstExistingField(t *testing.T) {
	t.Parallel()
	m := contract.Of(&contract.Envelope{
		CorrelationID: "c", Payload: contract.Payload{PaymentID: "p", OrderID: "o", CustomerID: "k", UID: "u"},
	})
	for fields, want := range map[string]string{
		"correlation_id": "c", "subscription_id": "", "payment_id": "p", "order_id": "o", "customer_id": "k",
		"uid": "u", "colour": "",
		"subscription_id payment_id uid": "p", "": "",
	} {
		require.Equal(t, want, m.OrderingKey(strings.Fields(fields), nil), fields)
	}
}

func TestMessageOverALimitIsRefusedByTheNameOfTheLimit(t *testing.T) {
	t.Parallel()
	full := func(bytes int) contract.Message {
		most := contract.Message{
			Attributes:  map[string]string{strings.Repeat("k", 256): strings.Repeat("v", 1024)},
			OrderingKey: strings.Repeat("o", 1024),
		}
		for i := range 99 {
			most.Attributes[fmt.Sprint("a", i)] = ""
		}
		most.Data = make([]byte, bytes-most.Size())
		return most
	}
	require.NoError(t, full(contract.MaxMessageBytes).Check(), "at every limit")
	require.ErrorIs(t, full(contract.MaxMessageBytes+1).Check(), contract.ErrLimit,
		"attributes and ordering key count")
	for name, attributes := range map[string]map[string]string{
		"an empty message": nil, "an empty key": {"": "v"},
		"a long key":   {strings.Repeat("k", 257): ""},
		"a long value": {"k": strings.Repeat("v", 1025)},
	} {
		m := contract.Message{Attributes: attributes}
		require.ErrorIs(t, m.Check(), contract.ErrLimit, name)
	}
	many, ordered := full(100_000), full(100_000)
	require.NoError(t, many.Check())
	many.Attributes["one more"] = ""
	ordered.OrderingKey += "o"
	require.ErrorIs(t, many.Check(), contract.ErrLimit)
	require.ErrorIs(t, ordered.Check(), contract.ErrLimit)
}

func TestFormatIsDetectedByItsAttributeElseByMembers(t *testing.T) {
	t.Parallel()
	for _, test := range readBodies(t).Detected {
		var attributes map[string]string
		if test.Attribute != "" {
			attributes = map[string]string{contract.AttrContract: test.Attribute}
		}
		require.Equal(t, test.Want, contracts().Detect(attributes, []byte(test.Data)), test.Data)
	}
}
