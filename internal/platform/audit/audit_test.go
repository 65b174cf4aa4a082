package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 123456789, time.UTC)

func change(subject string, at time.Time) audit.Entry {
	return audit.Entry{
		Kind: "customer", Tenant: "acme", Subject: subject, Action: "link", Who: "token:ada",
		Why: "ticket 7", At: at,
		After: map[string]any{"uid": "u1"},
	}
}

func TestAnEntryIsCreatedAndNeverWrittenOver(t *testing.T) {
	t.Parallel()
	w := filetest.Must(change("c~1/2", noon).With("r1"))(t)[0]
	require.NoError(t, store.CheckWrites([]store.Write{w}))
	require.Equal(t, store.OpCreate, w.Op)
	require.True(t, audit.IsEntry(w.Key.ID))
	require.False(t, audit.IsEntry("0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10"))
	require.Equal(t, map[string]any{
		"kind": "customer", "tenant": "acme", "subject": "c~1/2", "action": "link", "who": "token:ada",
		"why": "ticket 7", "at": noon.Truncate(time.Microsecond), "after": map[string]any{"uid": "u1"},
	}, w.Fields)
	again := filetest.Must(change("c~1/2", noon).With("r2"))(t)
	require.NotEqual(t, w.Key, again[0].Key, "two changes at one time have two entries")

	write := store.Set(store.Key{Collection: "customers", ID: "c1"}, nil)
	writes := filetest.Must(change("c~1/2", noon).With("r1", write))(t)
	require.Equal(t, []store.Write{write, w}, writes)
	writes, err := audit.Entry{}.With("r1", write)
	require.ErrorIs(t, err, audit.ErrInvalid)
	require.Empty(t, writes, "an invalid entry writes nothing")
}

func TestAnInvalidEntryIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*audit.Entry){
		"no kind":                  func(e *audit.Entry) { e.Kind = "" },
		"no subject":               func(e *audit.Entry) { e.Subject = "" },
		"no action":                func(e *audit.Entry) { e.Action = "" },
		"no operator":              func(e *audit.Entry) { e.Who = "" },
		"no time":                  func(e *audit.Entry) { e.At = time.Time{} },
		"no reason":                func(e *audit.Entry) { e.Why = " \t" },
		"a reason too long":        func(e *audit.Entry) { e.Why = strings.Repeat("w", audit.MaxWhy+1) },
		"a name too long":          func(e *audit.Entry) { e.Who = strings.Repeat("w", audit.MaxWho+1) },
		"a subject too long":       func(e *audit.Entry) { e.Subject = strings.Repeat("s", 1500) },
		"a reason that is no text": func(e *audit.Entry) { e.Why = "\xff" },
		"a name that is no text":   func(e *audit.Entry) { e.Who = "\xff" },
	} {
		e := change("c1", noon)
		spoil(&e)
		require.ErrorIs(t, filetest.ErrorOf(e.With("r1")), audit.ErrInvalid, name)
	}
}

func TestTheChangesOfOneSubjectAreListedTheNewestFirst(t *testing.T) {
	t.Parallel()
	documents := storetest.Open(t)
	for i, key := range []string{"acme c1", "acme c1", "acme c2", "acme c1~", "acme c1", "another c1"} {
		e := change("", noon.Add(time.Duration(i)*time.Hour))
		e.Tenant, e.Subject, _ = strings.Cut(key, " ")
		storetest.Put(t, documents, filetest.Must(e.With("r"))(t)...)
	}
	subject := audit.Subject{Kind: "customer", Tenant: "acme", ID: "c1"}
	first, next := filetest.Both(subject.List(t.Context(), documents, store.Cursor{}, 2))(t)
	require.NotEmpty(t, next)
	rest, next := filetest.Both(subject.List(t.Context(), documents, next, 2))(t)
	require.Empty(t, next)
	all := filetest.Must(subject.All(t.Context(), documents))(t)
	require.Equal(t, slices.Concat(first, rest), all)
	at := noon.Truncate(time.Microsecond)
	require.Equal(t, []time.Time{at.Add(4 * time.Hour), at.Add(time.Hour), at},
		[]time.Time{all[0].At, all[1].At, all[2].At})
	require.Equal(t, map[string]any{"uid": "u1"}, all[0].After)
	require.Nil(t, all[0].Before)

	equal := map[string]any{"subject": "c1", "who": ""}
	found, next, err := audit.Newest(t.Context(), documents, equal, store.Newest{}, store.Cursor{}, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"another", "acme"}, []string{found[0].Tenant, found[1].Tenant})
	found, _ = filetest.Both(audit.Newest(t.Context(), documents, equal, store.Newest{}, next, 2))(t)
	require.Equal(t, rest[0], found[1])

	key := filetest.Must(change("c1", noon).With("r"))(t)[0].Key
	storetest.Edit(t, documents, key, func(fields map[string]any) { delete(fields, "kind") })
	_, err = subject.All(t.Context(), documents)
	require.ErrorIs(t, err, audit.ErrBroken, "a document that is not an entry")
	_, _, err = audit.Newest(t.Context(), documents, nil, store.Newest{}, store.Cursor{}, 9)
	require.ErrorIs(t, err, audit.ErrBroken)
}

func TestAChangeOfAnotherVersionThanExpectedIsRefused(t *testing.T) {
	t.Parallel()
	key, none, seen := store.Key{Collection: "things", ID: "one"}, store.Version(0), store.Version(0)
	s, subject := &storetest.Faults{Store: storetest.Open(t)}, "one"
	ada := audit.Author{Proof: audit.Identity, Name: "ada"}
	by := func(expect *store.Version) audit.Change {
		return audit.Change{Who: ada, Why: "ticket 7", Expect: expect}
	}
	set := func(by audit.Change, id, value string) error {
		of := audit.Subject{Kind: "thing", Tenant: "acme", ID: subject}
		_, err := by.Update(t.Context(), s, key, of, noon, id, func(doc store.Document) (audit.Made, error) {
			if doc.Fields["value"] == value {
				return audit.Made{}, nil
			}
			after := map[string]any{"value": value}
			writes := []store.Write{store.Replace(key, doc.Version, after)}
			return audit.Made{Action: "set", Before: doc.Fields, After: after, Writes: writes, Version: &seen}, nil
		})
		return err
	}
	require.NoError(t, set(by(&none), "r1", "a"), "there was no record, as expected")
	first := seen
	require.ErrorIs(t, set(by(&none), "r2", "b"), audit.ErrChanged)
	require.NoError(t, set(by(&none), "r2", "a"), "it has the value already, maybe by an earlier call")
	require.NoError(t, set(by(&first), "r2", "b"))
	require.ErrorIs(t, set(by(&first), "r3", "c"), audit.ErrChanged)
	require.NoError(t, set(by(nil), "r3", "c"))
	require.ErrorIs(t, set(audit.Change{Who: ada}, "r4", "d"), audit.ErrInvalid, "a change needs a reason")

	meanwhile := true // another commit comes between the read and the commit
	s.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		if meanwhile {
			meanwhile = false
			storetest.Put(t, s.Store, store.Set(key, map[string]any{"value": "theirs"}))
		}
		return do()
	}
	last := seen
	require.ErrorIs(t, set(by(&last), "r5", "e"), audit.ErrChanged)
	entries := filetest.Must(audit.Subject{Kind: "thing", Tenant: "acme", ID: "one"}.All(t.Context(), s))(t)
	require.Len(t, entries, 3)
	require.Contains(t, entries, audit.Entry{
		Kind: "thing", Tenant: "acme", Subject: "one", Action: "set", Who: "ada", Why: "ticket 7",
		At:     noon.Truncate(time.Microsecond),
		Before: map[string]any{"value": "a"}, After: map[string]any{"value": "b"},
	})
	for _, subject = range []string{"", "a/b", "a b", strings.Repeat("i", 129)} {
		require.ErrorIs(t, set(by(nil), "r6", "f"), audit.ErrInvalid, subject)
	}
}

func TestTwoPeopleNeedTwoIdentities(t *testing.T) {
	t.Parallel()
	const ada, upper, tagged = "ada@shop.example", "Ada@Shop.Example", "ada+2@shop.example"
	const bob, spaced = "bob@shop.example", ada + " "
	for name, test := range map[string]struct {
		proof       audit.Proof
		name, first string
		want        error
		known       string
	}{
		"an identity begins":            {audit.Identity, ada, "", nil, ada},
		"another identity approves":     {audit.Identity, bob, ada, nil, bob},
		"the same identity approves":    {audit.Identity, ada, ada, audit.ErrSamePerson, ada},
		"it approves in another case":   {audit.Identity, upper, ada, audit.ErrSamePerson, upper},
		"it approves with a tag":        {audit.Identity, tagged, ada, audit.ErrSamePerson, tagged},
		"it approves on this machine":   {audit.ThisMachine, ada, ada, audit.ErrSamePerson, "local:" + ada},
		"it approves after a space":     {audit.ThisMachine, spaced, ada, audit.ErrSamePerson, "local:" + spaced},
		"a name that says token":        {audit.Identity, "token-" + ada, ada, nil, "token-" + ada},
		"a token begins":                {audit.SharedToken, ada, "", audit.ErrNoIdentity, "token:" + ada},
		"a token approves":              {audit.SharedToken, "bob", ada, audit.ErrNoIdentity, "token:bob"},
		"a token without a name begins": {audit.SharedToken, "", "", audit.ErrNoIdentity, "token"},
		"a name on this machine begins": {audit.ThisMachine, "ada", "", nil, "local:ada"},
		"another name on it approves":   {audit.ThisMachine, "bob", "local:ada", nil, "local:bob"},
		"the same name on it approves":  {audit.ThisMachine, "ada", "local:ada", audit.ErrSamePerson, "local:ada"},
		"nobody on this machine begins": {audit.ThisMachine, "", "", audit.ErrNoIdentity, "local"},
		"nobody begins":                 {"", "", "", audit.ErrNoIdentity, ""},
		"a name without a proof begins": {"", "ada", "", audit.ErrNoIdentity, ":ada"},
	} {
		by := audit.Author{Proof: test.proof, Name: test.name}
		require.ErrorIs(t, audit.TwoPeople(test.first, by), test.want, name)
		require.Equal(t, test.known, by.String(), name)
	}
}

// unseen are characters that control a terminal, or are invisible.
var unseen = map[string]string{
	"a line break": "\n", "a carriage return": "\r", "an escape": "\x1b[2J", "a delete": "\x7f",
	"a control of two bytes": "\u009b31m", "a direction override": "\u202e", "an isolate": "\u2066",
	"a direction mark": "\u200f", "an Arabic mark": "\u061c", "a line separator": "\u2028",
	"a zero-width space": "\u200b", "a byte order mark": "\ufeff", "a tag": "\U000e0041",
	"a soft hyphen": "\u00ad",
}

func TestAReasonAndANameHaveNoInvisibleCharacter(t *testing.T) {
	t.Parallel()
	for name, text := range unseen {
		for what, err := range map[string]error{
			"reason": audit.CheckWhy("found" + text + "again"), "operator's name": audit.CheckWho("token:ada" + text),
		} {
			require.ErrorIs(t, err, audit.ErrInvalid, name)
			require.ErrorContains(t, err, what, name)
		}
		escaped := audit.Escape("found" + text + "again")
		require.NotContains(t, escaped, text, name)
		require.NoError(t, audit.CheckWhy(escaped), "an escaped text may be stored")
		require.Regexp(t, `^found\\.*again$`, escaped, name)
	}
	require.Equal(t, "a�b", audit.Escape("a\xffb"))
	require.Equal(t, "a\\u202e\nb\n", audit.EscapeLines("a\u202e\nb\n"), "line breaks stay")
	require.Equal(t, `"\u202e\udb40\udc41"`, audit.Escape("\"\u202e\U000e0041\""))
	for _, plain := range []string{"", "Grüße, 価格, \"quoted\", 100 %", "نمی\u200cخواهم", "👩\u200d💻"} {
		require.NoError(t, audit.CheckWhy(plain))
		require.Equal(t, plain, audit.Escape(plain))
	}
}

func TestAReasonMayHaveIDsAndTimesButNoPersonalData(t *testing.T) {
	t.Parallel()
	for found, why := range map[string]string{
		"email": "asked for by ilse@example.org", "card": "paid with 4111 1111 1111 1111",
		"phone": "call +49 30 901820", "iban": "to DE89370400440532013000", "ip": "from 203.0.113.7",
	} {
		err := audit.CheckWhy(why)
		require.ErrorIs(t, err, audit.ErrInvalid, why)
		require.ErrorContains(t, err, "("+found+")")
		for word := range strings.FieldsSeq(why) {
			if strings.ContainsAny(word, "@0123456789") {
				require.NotContains(t, err.Error(), word, "the value is not repeated")
			}
		}
	}
	require.NoError(t, audit.CheckWho("ada@example.org"), "an identity's name is an address")
	for _, why := range []string{
		"the product is known now", "ticket OPS-4711, 2026-11-22 12:30", "INC-00123456", "ticket 1234567890",
		"refund of 1234.50 EUR on 2026-03-02T10:15:00Z", "commit 79a6775 and 2196634",
		"operation 6f9619ff-8b86-d011-b42d-00cf4fc964ff",
	} {
		require.NoError(t, audit.CheckWhy(why), why)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		why := fmt.Sprintf("order 500%016d, product 41%016d", random.Int64N(1e16), random.Int64N(1e16))
		require.NoError(t, audit.CheckWhy(why), why)
	}
}
