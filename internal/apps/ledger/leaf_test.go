package ledger_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// vectors are documents by the names that testdata/leaves.json gives them.
func vectors(t *testing.T) map[string]store.Document {
	t.Helper()
	entry, err := ledger.Read(document(ledger.Post(paid())))
	require.NoError(t, err)
	reversal, err := entry.Reversal("evt-2", "2026-04", noon.AddDate(0, 1, 0))
	require.NoError(t, err)
	order := credit("order-1", 1000)
	writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{credited(order)}}}, guest, "op-1", noon)
	odd := paid()
	odd.Tenant, odd.EventID, odd.EventType, odd.Rule = "a~b/ü", "e\"\\\u2028\x7f😀", "", ""
	odd.Lines = []ledger.Line{{Account: "€<&>", Currency: "JPY", Credit: ledger.MaxAmount}, {Account: "\U0001f600", Currency: "JPY", Debit: ledger.MaxAmount}}
	later := document(ledger.Post(paid()))
	later.Fields["later"] = map[string]any{"é": nil, "z": true, "a": []any{int64(-1), "x", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, "\U0001f600": "", "\ufb33": false}
	return map[string]store.Document{
		"an invoice":                       document(ledger.Post(paid())),
		"its reversal":                     document(ledger.Post(reversal)),
		"names that JSON escapes":          document(ledger.Post(odd)),
		"a field of a later release":       later,
		"the credit of an order":           document(ledger.Credit(order)),
		"a transfer of what is left of it": document(writes, err),
	}
}

// TestTheLeafHashesAreWhatTheyWere: a hash that changes makes every seal a lie. The file was
// computed with another program as well, and never changes.
func TestTheLeafHashesAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "leaves.json"))
	require.NoError(t, err)
	var want map[string]struct{ Canonical, Leaf string }
	require.NoError(t, json.Unmarshal(text, &want))
	documents := vectors(t)
	require.Len(t, documents, len(want))
	unread, err := paid().LeafHash()
	require.NoError(t, err)
	require.Equal(t, want["an invoice"].Leaf, hex.EncodeToString(unread), "of an entry that is not posted yet")
	for name, doc := range documents {
		entry, err := ledger.Read(doc)
		require.NoError(t, err, name)
		canonical, err := entry.Canonical()
		require.NoError(t, err, name)
		require.Equal(t, want[name].Canonical, string(canonical))
		leaf, err := entry.LeafHash()
		require.NoError(t, err, name)
		require.Equal(t, want[name].Leaf, hex.EncodeToString(leaf), name)
		sum := sha256.Sum256(append([]byte{0}, canonical...)) // RFC 6962, section 2.1
		require.Equal(t, sum[:], leaf, name)
		sealed, err := ledger.Read(store.Document{Key: doc.Key, Fields: entry.Sealed(7, 42).Fields})
		require.NoError(t, err, name)
		again, err := sealed.LeafHash()
		require.NoError(t, err, name)
		require.Equal(t, leaf, again, "sealing is not in the hash")
	}
}

func TestAValueWithoutAnExactFormHasNoHash(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(fields map[string]any){
		"a number beyond doubles":   func(f map[string]any) { f["later"] = int64(1 << 53) },
		"one below them":            func(f map[string]any) { f["later"] = []any{map[string]any{"x": int64(math.MinInt64)}} },
		"a field that is called id": func(f map[string]any) { f["id"] = "x" },
	} {
		doc := document(ledger.Post(paid()))
		change(doc.Fields)
		entry, err := ledger.Read(doc)
		require.NoError(t, err, name)
		_, err = entry.LeafHash()
		require.ErrorIs(t, err, ledger.ErrBroken, name)
	}
	broken := paid()
	broken.Lines[0].Debit++
	_, err := broken.LeafHash()
	require.ErrorIs(t, err, ledger.ErrInvalid)
}

// TestTheCanonicalBytesAreThoseOfAnotherProgram compares them with a library's, for fields of any
// name and value.
func TestTheCanonicalBytesAreThoseOfAnotherProgram(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("a\"\\\x00\x1f\u007f\u2028é\ufb33\U0001f600"))))
	scalar := rapid.OneOf(text.AsAny(), rapid.Int64Range(-1<<53+1, 1<<53-1).AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil))
	value := rapid.OneOf(scalar, rapid.SliceOf(scalar).AsAny(), rapid.MapOf(text, scalar).AsAny())
	rapid.Check(t, func(t *rapid.T) {
		doc := document(ledger.Post(paid()))
		for name, v := range rapid.MapOf(text, value).Draw(t, "fields") {
			if _, there := doc.Fields["x"+name]; !there {
				doc.Fields["x"+name] = v
			}
		}
		doc.Fields["\ufb33"], doc.Fields["\U0001f600"] = value.Draw(t, "one"), value.Draw(t, "another")
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		ours, err := entry.Canonical()
		require.NoError(t, err)
		theirs := jsontext.Value(append([]byte{}, ours...))
		require.NoError(t, theirs.Canonicalize())
		require.Equal(t, string(theirs), string(ours))
		var back map[string]any
		require.NoError(t, json.Unmarshal(ours, &back))
		delete(back, "id")
		require.Len(t, back, len(doc.Fields)-2, "all but the marks")
	})
}

// FuzzRead reads documents that anybody might have written: what is read balances.
func FuzzRead(f *testing.F) {
	for _, doc := range []store.Document{document(ledger.Post(paid())), document(ledger.Credit(credit("order-1", 1000)))} {
		text, err := json.Marshal(doc.Fields)
		require.NoError(f, err)
		f.Add(doc.Key.ID, text)
	}
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		var fields map[string]any
		if json.Unmarshal(text, &fields) != nil {
			return
		}
		fields, _ = typed(fields).(map[string]any)
		entry, err := ledger.Read(store.Document{Key: ledger.Key(id), Fields: fields})
		if err != nil {
			require.ErrorIs(t, err, ledger.ErrBroken)
			return
		}
		left := map[string]int64{}
		for _, line := range entry.Lines {
			left[line.Currency] += line.Debit - line.Credit
		}
		for currency, amount := range left {
			require.Zero(t, amount, "%s in %s", entry.ID, currency)
		}
	})
}

// typed returns a JSON value as a document would hold it.
func typed(value any) any {
	switch v := value.(type) {
	case float64:
		return int64(v)
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = typed(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = typed(inner)
		}
	}
	return value
}
