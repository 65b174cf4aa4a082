package main

var faultsOfSeals = []fault{
	{"a seal does not name the one before", "internal/ledger/seal/sealer.go", `Previous: c.head.Hash,`, `Previous: firstPrevious,`,
		"internal/ledger/seal", "TestASealSaysWhatItHoldsAndWhatItFollows"},
	{"a seal is put upon one that was changed", "internal/ledger/seal/seal.go", `return s, s.Check()`, `return s, nil`,
		"internal/ledger/seal", "TestATenantThatCannotBeSealedKeepsNoOtherFromIt"},
	{"two sealers write one head", "internal/ledger/seal/sealer.go", `writes[2] = store.Update(key, c.head.version, after.fields())`, `writes[2] = store.Set(key, after.fields())`,
		"internal/ledger/seal", "TestAHeadIsWrittenAtItsVersion"},
	{"a balance counts what was sealed meanwhile twice", "internal/ledger/seal/balances.go", `delete(unsealed, l.id)`, `_ = l.id`,
		"internal/standin", "TestSealsFollowTheModelHere"},
	{"running sums forget what was sealed before", "internal/ledger/seal/sealer.go", `next.Running[entry.Period] = before.clone()`, `next.Running[entry.Period] = Totals{}`,
		"internal/ledger/seal", "TestASealSaysWhatItHoldsAndWhatItFollows"},
	{"an entry that was changed is not found", "internal/ledger/seal/verify.go", `case !bytes.Equal(leafHash(canonical), hash):`, `case len(canonical) == 0 || len(hash) == 0:`,
		"internal/ledger/seal", "TestWhatWasDoneToTheBooksIsNamed"},
	{"an entry that is gone is not found", "internal/ledger/seal/verify.go", `v.find(Missing, ledger.Key(l.id), number, "the entry is gone")`, `_ = number`,
		"internal/ledger/seal", "TestWhatWasDoneToTheBooksIsNamed"},
	{"the last seal may be cut off", "internal/ledger/seal/verify.go", `v.gap(last.number+1, h.Number)`, `_ = h.Number`,
		"internal/ledger/seal", "TestWhatWasDoneToTheBooksIsNamed"},
	{"a proof says nothing of the way to the root", "internal/ledger/seal/proof.go", `leafHash(proof.ExtraData), hashes, c.Hash); err != nil {`, `leafHash(proof.ExtraData), hashes, c.Hash); err != nil && len(hashes) == 0 {`,
		"internal/ledger/seal", "TestVectorsOfProofs"},
	{"one tenant keeps the others from their seals", "internal/ledger/seal/sealer.go", `first = cmp.Or(first, err)`, `if err != nil { return err }`,
		"internal/ledger/seal", "TestATenantThatCannotBeSealedKeepsNoOtherFromIt"},
}
