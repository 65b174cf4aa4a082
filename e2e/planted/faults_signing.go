package main

// faultsOfSigning are those by which a key is made that nobody can sign or check with.
var faultsOfSigning = []fault{
	{"a key is made for a name that no signature can have", "internal/ledger/seal/proof.go", `if _, err := note.NewVerifier(verifier); err != nil {`, `if _, err := note.NewVerifier(verifier); false && err != nil {`, "cmd/billhook", "TestAKeyIsMadeForThePersonWhoAsks"},
	{"a stored key with a line break signs nothing", "internal/ledger/seal/proof.go", `key = strings.TrimSpace(key)`, `key = strings.TrimPrefix(key, " ")`, "cmd/billhook", "TestAProofIsCheckedByAStranger"},
	{"the verifier key is printed for the private one", "internal/ledger/seal/proof.go", `Private: private, Verifier: verifier}`, `Private: verifier, Verifier: private}`, "cmd/billhook", "TestAKeyIsMadeForThePersonWhoAsks"},
}
