package main

const (
	entries   = "internal/ledger/entry.go"
	reading   = "internal/ledger/read.go"
	points    = "internal/ledger/points.go"
	leaf      = "internal/ledger/leaf.go"
	ledgerDir = "internal/ledger"

	books = "TestTheBooksHoldOnTheEmbeddedStore"
)

// faultsOfLedger are those of the entries of the books.
var faultsOfLedger = []fault{
	{"an entry of a journal is written over", entries, `store.Create(Key(e.ID), fields)`, `store.Set(Key(e.ID), fields)`, "internal/standin", books},
	{"debits and credits may differ", entries, `		if amount != 0 {`, `		if amount < 0 {`, ledgerDir, "TestPostRefusesWhatIsNoEntry"},
	{"all currencies of an entry balance together", entries, `left[line.Currency] += line.Debit - line.Credit`, `left[""] += line.Debit - line.Credit`, ledgerDir, "TestPostRefusesWhatIsNoEntry"},
	{"a reversal may be reversed", entries, `	if e.Kind != KindJournal {
		return Entry{}`, `	if e.Kind == "" {
		return Entry{}`, "internal/standin", books},
	{"each event that reverts makes a reversal", entries, `return ReversalID(e.Reverts)`, `return ReversalID(e.Reverts) + e.EventID`, "internal/standin", books},
	{"a reversal posts the lines once more", entries, `line.Debit, line.Credit = line.Credit, line.Debit`, `line.Debit, line.Credit = line.Debit, line.Credit+0`, "internal/standin", books},
	{"an entry may be moved to another book", reading, `if fields[FieldBook] != BookKey(e.Tenant, e.Period) ||`, `if`, ledgerDir, "TestWhatContradictsItselfIsNoEntry"},
	{"an entry may be sealed twice", reading, `store.Update(e.document.Key, e.document.Version, fields)`, `store.Set(e.document.Key, fields)`, "internal/standin", books},
	{"a hash knows the seal", leaf, `{FieldOpen, FieldUnsealed, fieldSeal, fieldLeaf}`, `{FieldOpen, FieldUnsealed}`, ledgerDir, "TestTheLeafHashesAreWhatTheyWere"},
	{"a hash leaves out what this release does not know", leaf, `	fields["id"] = e.ID`, `	delete(fields, "later")
	fields["id"] = e.ID`, ledgerDir, "TestTheLeafHashesAreWhatTheyWere"},
	{"numbers are hashed as doubles", leaf, `if v < -maxExact || v > maxExact {`, `if v < -maxExact && v > maxExact {`, ledgerDir, "TestWhatHasNoExactFormHasNoHash"},
	{"a move and its lines may differ", points, `if !slices.Equal(lines, m.Lines()) {`, `if len(lines) != len(m.Lines()) {`, ledgerDir, "TestWhatContradictsItselfIsNoEntry"},
}
