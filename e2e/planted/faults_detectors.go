package main

const (
	detectors = "internal/pii/detect.go"
	addresses = "internal/pii/address.go"
	cards     = "internal/pii/card.go"
	phones    = "internal/pii/phone.go"
	banks     = "internal/pii/iban.go"
	shapes    = "internal/pii/rule.go"
	piiDir    = "internal/pii"
	recallDir = "internal/pii"

	finds   = "TestTheDetectorsFindPersonalData"
	silent  = "TestTheDetectorsAreSilentAboutIdentifiers"
	alone   = "TestDigitsAloneAreLookedAtAsTheirRuleSays"
	allFind = "TestAllButPhonesAreFoundAndNoIDIsRefused"
)

// faultsOfDetectors are those that let something personal through, or refuse an id.
var faultsOfDetectors = []fault{
	{"digits alone in an id are never a card", detectors, `longest := 16`, `longest := 12`, piiDir, alone},
	{"a flake of 19 digits is a card", detectors, `if r.shape == uid {`, `if r.shape != code {`, piiDir, alone},
	{"letters in front of a number hide it", detectors, `for first < len(value) && class[value[first]] == letter {`, `for false {`, piiDir, finds},
	{"the groups of a UUID are looked at", detectors, `if isUUID(value[start:]) {`, `if false {`, piiDir, silent},
	{"Facebook's accounts are cards", detectors, `return ok && spelled(account, 17, digit, digit)`, `return ok && spelled(account, 12, digit, digit)`, piiDir, silent},
	{"a card need be no network's", cards, `return n.lengths&(1<<len(digits)) != 0 && four >= n.from && four <= n.to`, `_ = four; return n.lengths != 0`, recallDir, allFind},
	{"a card need not be right by Luhn", cards, `return sum%10 == 0`, `return sum >= 0`, piiDir, silent},
	{"an IBAN in small letters passes", banks, `c -= 'a' - 'A'`, `_ = c`, piiDir, finds},
	{"an IBAN need not have its format", banks, `switch kind := class[c] & format[n]; {`, `switch kind := class[c] & (letter | digit); {`, piiDir, silent},
	{"an EUI-64 is an address", addresses, `(full && !pairs)`, `full && (pairs || !pairs)`, piiDir, silent},
	{"letters in front of an address hide it", addresses, `(i == start || group-start > 4) && spelled(value[word:i], len(value), letter, letter)`, `false`, piiDir, finds},
	{"order ids with dashes are phones", phones, `return n.dotted && !dated && n.isNational()`, `return !dated && n.isNational()`, piiDir, silent},
	{"the word before a phone is not read", phones, `return bytes.EqualFold(value[start:end], []byte(word))`, `return bytes.Equal(value[start:end], []byte(word)) && false`, piiDir, finds},
	{"a uid has no bar", shapes, `letter|digit|mark|colon|bar)`, `letter|digit|mark|colon)`, piiDir, "TestTheNamesThatIdentityProvidersGiveAreUIDs"},
	{"a card is an amount", shapes, `return isInteger(value) && !isCardOf(15, 19, value)`, `return isInteger(value)`, piiDir, "TestNoNumberIsACards"},
}
