package main

const (
	opsJournal = "internal/ops/journal.go"
	opsPeriods = "internal/ops/periods.go"
	cmdVerify  = "cmd/billhook/verify.go"
	cmdDir     = "cmd/billhook"
)

// faultsOfBooks are those by which a person is told something else of the books than what stands in
// them.
var faultsOfBooks = []fault{
	{"a list has the entries of another tenant", opsJournal, `if entry.Tenant == tenant && (period == ""`, `if true && (period == ""`, opsDir, "TestEntriesAreListedByMonthAndByAccount"},
	{"a proof is given by an event of any tenant", opsJournal, `id := entryID(tenant, param(r, "entry"))`, `id := entryID(tenant[:0]+"acme", param(r, "entry"))`, opsDir, "TestAProofOfAnotherTenantsEntryIsNotGivenByItsEvent"},
	{"broken books are a store that does not answer", opsJournal, `	{Of: seal.ErrBroken, As: errChanged},
`, ``, opsDir, "TestBalancesOverASealThatWasChangedSaySo"},
	{"what came late is looked for in the newest seals alone", opsPeriods, `before = next`, `before = min(next, 0)`, opsDir, "TestWhatAClosedMonthGotLateIsFoundWhereverItIsSealed"},
	{"a token reopens a month", author, `by.Proof != Identity && by.Proof != ThisMachine`, `by.Proof == Identity+ThisMachine`, cmdDir, "TestAMonthIsClosedByOneAndReopenedByTwo"},
	{"a verification with findings succeeds", cmdVerify, `			if len(v.Findings) > 0 {`, `			if false {`, cmdDir, "TestTheBooksAreVerifiedAndWhatIsWrongIsNamed"},
	{"a seal that was kept is compared with itself", "internal/ledger/seal/kept.go", `case hash != s.Hash:`, `case hash != hash+s.Hash[:0]:`, cmdDir, "TestBooksThatWereSealedAgainAreFoundByTheSealsThatWereKept"},
	{"a kept seal that was changed is believed", cmdVerify, `if err := s.Check(); err != nil {`, `if err := s.Check(); false {`, cmdDir, "TestBooksThatWereSealedAgainAreFoundByTheSealsThatWereKept"},
	{"half an export is left as the whole", "cmd/billhook/export.go", `if err = errors.Join(err, buffered.Flush(), part.Sync(), part.Close()); err == nil {`,
		`if err = errors.Join(err, buffered.Flush(), part.Sync(), part.Close()); true {`, cmdDir, "TestAMonthIsExportedWholeOrNotAtAll"},
	{"a statement begins with nothing", "cmd/billhook/statement.go", `s.Opening[l.Currency], want[l.Currency] = l.Opening, l.Closing`, `s.Opening[l.Currency], want[l.Currency] = 0, l.Closing-l.Opening`, cmdDir, "TestTheBooksAreReadFromATerminal"},
}
