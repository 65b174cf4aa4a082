package main

// faultsOfTheTerminal are in what a person types and reads.
var faultsOfTheTerminal = []fault{
	{"a typo of a command succeeds", "cmd/billhook/misuse.go", `if len(given) > 0 && command.HasAvailableSubCommands() {`, `if len(given) > 0 && command.HasAvailableSubCommands() && command.Annotations[parent] == "" {`, cmdDir, "TestAWrongUseExitsWith2AndSaysWhatToType"},
	{"a wrong use exits as a failure", "cmd/billhook/misuse.go", `const misused = 2`, `const misused = 1`, cmdDir, "TestOnlyAnAnswerToAWrongQuestionIsAWrongUse"},
	{"a refusal by the worker's state is a wrong use", "cmd/billhook/misuse.go", `if e.Status == http.StatusBadRequest {`, `if e.Status >= http.StatusBadRequest {`, cmdDir, "TestOnlyAnAnswerToAWrongQuestionIsAWrongUse"},
	{"an exit code is lost on its way", "internal/serve/serve.go", `return coded.ExitCode()`, `return 1`, "internal/serve", "TestAnErrorSaysItsExitCode"},
	{"a table is as wide as it likes", "cmd/billhook/table.go", `widths[widest]--`, `width = total(widths)`, cmdDir, "TestNoLineIsWiderThanTheScreenAndNoCellIsCut"},
	{"a wrapped cell loses a character", "cmd/billhook/table.go", `rest = []rune(strings.TrimLeft(string(rest[at:]), " "))`, `rest = []rune(strings.TrimLeft(string(rest[min(len(rest), at+1):]), " "))`, cmdDir, "TestNoLineIsWiderThanTheScreenAndNoCellIsCut"},
	{"NO_COLOR is not heard", "cmd/billhook/table.go", `s.colour = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"`, `s.colour = getenv("TERM") != "dumb"`, cmdDir, "TestATerminalHasItsOwnWidthAndColoursUnlessTheyAreNotWanted"},
	{"a time is printed without its zone", "cmd/billhook/print.go", `return t.UTC().Format(time.RFC3339)`, `return t.UTC().Format(time.DateTime)`, cmdDir, "TestATimeIsPrintedInUTCWithItsZone"},
}
