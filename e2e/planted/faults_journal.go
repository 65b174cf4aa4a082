package main

// The journal: rules, entries, reversals, periods.
const (
	journalRules    = "catalog/journal.go"
	journalPosts    = "internal/journal/journal.go"
	journalReverts  = "internal/journal/reverter.go"
	journalPeriods  = "internal/journal/periods.go"
	journalCalendar = "internal/journal/calendar.go"
	journalDir      = "internal/journal"
)

// faultsOfJournal are those that would post what does not balance, post or revert twice, or post
// into a closed period.
var faultsOfJournal = []fault{
	{"a rule that does not balance is taken", journalRules, `if minus == (line.Credit == "") {`, `if minus {`, "catalog", "TestARuleIsTakenExactlyWhereItBalancesForAnyAmounts"},
	{"currencies balance each other", journalRules, `for _, currency := range slices.Sorted(maps.Keys(sums)) {`, `for _, currency := range slices.Sorted(maps.Keys(sums))[:1] {`,
		"catalog", "TestARuleIsTakenExactlyWhereItBalancesForAnyAmounts"},
	{"an amount is booked in another currency than its own", journalRules, `require(line.Currency == currency, path+".currency", shown(name)+of`, `require(true, path+".currency", shown(name)+of`,
		"catalog", "TestEachMistakeOfTheJournalNamesFileRuleAndReason"},
	{"what is taken away is added", journalPosts, `amount = -amount`, `amount = +amount`, journalDir, "TestARuleMakesTheLinesOfAnEvent"},
	{"a line below nothing is posted on the other side", journalPosts, `case sum < 0:`, `case sum < -1<<62:`, journalDir, "TestARuleMakesTheLinesOfAnEvent"},
	{"an entry whose record is forgotten is a conflict for ever", journalPosts, `case !sameEntry(before, entry):`, `case before.ID != "":`, "internal/standin", "TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore"},
	{"another payload passes for the entry", journalPosts, `case !sameEntry(before, entry):`, `case before.ID == "":`, "internal/standin", "TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore"},
	{"what undoes another event does not wait for it", journalPosts, `return retry.Missing("original_missing", nil)`, `return retry.Permanent("original_missing", nil)`,
		"internal/standin", "TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore"},
	{"a reversal counts in the month of its original", journalPosts, `original.Reversal(event.ID, ledger.PeriodOf(occurred), deps.Now())`, `original.Reversal(event.ID, original.Period, deps.Now())`,
		journalDir, "TestAClosedPeriodTakesNoEntry"},
	{"a closed period takes entries", journalPosts, `	case closed:
`, `	case closed && false:
`, journalDir, "TestAClosedPeriodTakesNoEntry"},
	{"a person reverts another tenant's entry", journalReverts, `case original.Tenant != tenant, `, `case `, journalDir, "TestAPersonUndoesAnEntryOnce"},
	{"one person reopens a period", journalPeriods, `audit.TwoPeople(before.Reopening.Who, by.Who)`, `audit.TwoPeople("", by.Who)`, journalDir, "TestAPeriodIsClosedByOnePersonAndReopenedByTwo"},
	{"a period closes at once", journalPeriods, `= now.Add(Notice), by.Who`, `= now, by.Who`, journalDir, "TestAClosedPeriodTakesNoEntry"},
	{"a calendar is believed for ever", journalCalendar, `age >= believedFor || `, ``, journalDir, "TestACalendarAsksBehindTheBackOfThoseWhoPost"},
	{"the answer to a duplicate has no room for the entry", answer, `if a.Ref != "" {`, `if false {`, pushDir, "TestTheAnswerNamesWhatTheEventMade"},
}
