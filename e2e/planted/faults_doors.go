package main

const (
	projection = "internal/pii/projection.go"
	paynow     = "internal/webhook/paynow.go"
	relax      = "internal/contract/relax.go"
	provision  = "internal/gcp/pubsub/provision.go"
	publisher  = "internal/gcp/pubsub/publisher.go"
	webhook    = "internal/webhook/webhook.go"

	contractDir = "internal/contract"
	webhookDir  = "internal/webhook"
	pubsubDir   = "internal/gcp/pubsub"
	contracts   = "internal/contract/set.go"
	bodies      = "internal/contract/body.go"
	walker      = "internal/contract/rules.go"
	byPath      = "TestAMessageIsRefusedByPathAndRule"
	detectors   = "internal/pii/detect.go"
	addresses   = "internal/pii/address.go"
	cards       = "internal/pii/card.go"
	phones      = "internal/pii/phone.go"
	banks       = "internal/pii/iban.go"
	shapes      = "internal/pii/rule.go"
	piiDir      = "internal/pii"
	recallDir   = "internal/pii"

	finds       = "TestTheDetectorsFindPersonalData"
	silent      = "TestTheDetectorsAreSilentAboutIdentifiers"
	alone       = "TestDigitsAloneAreLookedAtAsTheirRuleSays"
	allFind     = "TestAllButPhonesAreFoundAndNoIDIsRefused"
	signingKeys = "internal/gcp/auth/keys.go"
	tokenReader = "internal/gcp/auth/token.go"
	tokensDir   = "internal/gcp/auth"
	opsAuth     = "internal/ops/auth.go"
	opsBody     = "internal/ops/api.go"
	opsDir      = "internal/ops"

	spelled = "TestClaimsAndHeadersAreReadExactly"
)

// faultsOfDoors are those of what is received, kept and let in.
var faultsOfDoors = []fault{
	// Those at the doors: memory before the signature, the metrics' port, and how long things are kept.
	{"a body is read before its headers are looked at", "internal/webhook/admit.go", `claim, err := from.verifier.Headers(r.Header.Values)`,
		`_ = b.body.Read(w, r, from.MaxBodyBytes, s.bodies); claim, err := from.verifier.Headers(r.Header.Values)`, "internal/webhook", "TestWhatTheHeadersRefuseCostsNoByteOfItsBody"},
	{"a body without an encoding may not say so", "internal/webhook/admit.go", `!strings.EqualFold(encoding, "identity")`, `true`, "internal/webhook", "TestABodyThatIsNotEncodedMaySaySo"},
	{"a large buffer is kept", "internal/webhook/admit.go", `if cap(*buffer) > mostKept {`, `if cap(*buffer) > 64*mostKept {`, "internal/webhook", "TestALargeBufferIsNotKeptForTheNextRequest"},
	{"a budget has no end", "internal/serve/body.go", `if bytes > b.bytes-held {`, `if bytes < 0 {`, "internal/webhook", "TestBodiesInFlightHoldNoMoreThanTheirBudget"},
	{"bodies that were answered are still counted", "internal/serve/body.go", `budget.Release(b.claimed)`, `budget.Release(0)`, "internal/webhook", "TestAPanicGivesBackWhatItsBodyHeld"},
	{"what is announced is claimed", "internal/serve/body.go", `size := 2 * old`, `size := most + 1`, "internal/webhook", "TestAnAnnouncedLengthHoldsNothing"},
	{"a push that was answered holds its body", "internal/push/push.go", `defer d.release()
	a, record`, `a, record`, pushDir, "TestAnAnsweredPushHoldsNothing"},
	{"a dead letter that was kept holds its body", "internal/push/push.go", `defer d.release()
	ctx, cancel`, `ctx, cancel`, pushDir, "TestAnAnsweredPushHoldsNothing"},
	{"the metrics are on the public port too", "internal/webhook/webhook.go", `serve.Health(router, s.draining.Load)`,
		`serve.Health(router, s.draining.Load); router.Method(http.MethodGet, "/metrics", config.Metrics.Handler())`, "cmd/webhook", "TestTheMetricsAreNotOnThePublicPort"},
	{"an answer is cut off while its handler works", "internal/serve/serve.go", `s.ReadTimeout + s.Longest + toRead,`, `s.Longest,`, "internal/serve", "TestTheWriteTimeoutHoldsTheLongestRequestAndItsWork"},
	{"an emulator is asked for more than it keeps", "internal/gcp/pubsub/provision.go", `retention = min(retention, emulatorRetention)`, `retention = max(retention, emulatorRetention)`,
		"internal/gcp/pubsub", "TestWhatTheCatalogKeepsIsAskedForAsFarAsItCanBe"},
	// Those at the door: members left out, refusals, and their reports.
	{"an optional field refuses the webhook", projection, `if w.mode == lenient && at.optional {`, `if false {`,
		piiDir, "TestABadOptionalFieldIsLeftOut"},
	{"a fraction is a uid", projection, `!spelled(value, maxText, digit, digit)`, `false`, piiDir, "TestABadOptionalFieldIsLeftOut"},
	{"an element of a list is left out", projection, `n.element.optional = false`, `n.element.optional = true`,
		piiDir, "TestABadRequiredFieldRefusesTheBody"},
	{"a field that must not be left out is", walker, `field.Tag.Get("pii") != "strict"`, `true`, contractDir, "TestTheTagsSayWhatIsOptional"},
	{"a producer is not told what the contract does not know", projection, `if child == nil && w.mode == exact {`, `if false {`,
		webhookDir, "TestAProducerIsToldOfEachMemberTheContractDoesNotKnow"},
	{"an unknown name is repeated, whatever it is", projection, `if !Code.valid(name) || detect(Code, name) != "" {`, `if false {`,
		webhookDir, "TestAProducerIsToldOfEachMemberTheContractDoesNotKnow"},
	{"what an effect needs is left out", paynow, `optional := strings.Fields(of.takes)`, `optional := strings.Fields(of.takes + " " + of.needs)`,
		webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a refunded part below nothing is a refund of all", paynow, `case s != nil && *s < 0:`, `case false:`, webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a total that was left out is made of the prices", paynow, `totalLost := f.lost("body.total_amount")`, `totalLost := false`,
		webhookDir, "TestAnOrderIsTakenWhateverElseIsOddAboutIt"},
	{"a contract's total that was left out is made of the prices", relax, `case r.lost("data.order.total"):`, `case false:`,
		contractDir, "TestARelaxedOrderIsGoodAndCostsWhatItDid"},
	{"a refund loses the currency of its amount", relax, `!isCurrency(*currency) && !stays`, `!isCurrency(*currency)`,
		contractDir, "TestARelaxedRefundGivesBackWhatItDid"},
	{"what is left out of a refused webhook is counted", webhook, `if o.status == http.StatusAccepted { // one`, `if true { // one`,
		webhookDir, "TestWhatTheEffectNeedsRefuses"},
	{"a queue that is not enabled has a topic", provision, `if !q.Enabled {`, `if false {`, pubsubDir, "TestProvisionGivesEachQueueItsResources"},
	{"a missing topic is an outage", publisher, `contract.ErrTopicMissing,`, `contract.ErrBrokerDown,`, pubsubDir, "TestAnErrorOfPublishNamesItsCause"},
	// Those of what messages may say.
	{"a version that is not declared is taken", contracts, `case versions[version] == nil:`, `case versions[version] == nil && len(versions) == 0:`, contractDir, byPath},
	{"a member that is required may be missing", "internal/contract/declare.go", `presence, omit = "required,", ""`, `omit = ""`, contractDir, byPath},
	{"an emission is not held to its contract", contracts, `return body, body.Validate()`, `return body, nil`, contractDir, "TestAnEmissionIsHeldToWhatIsDeclared"},
	{"an amount may have other digits than its currency", walker, `return err == nil && 0 <= minor && minor <= money.Max`, `return err != nil || minor >= 0`, contractDir, byPath},
	{"a list is looked at as far as its first element", walker, `for i := range v.Len() {`, `for i := range min(v.Len(), 1) {`, contractDir, byPath},
	{"a handler takes what does not fit it", bodies, `case of.Kind() != place.Kind():`, `case false:`, contractDir, "TestTheGoTypesFitWhatIsDeclared"},
	{"an ordering key is made of nothing", bodies, `if value != "" {
			return value
		}
	}
	return ""
}

// PayloadHash`, `if value != "" {
			defer func() { _ = value }()
		}
	}
	return ""
}

// PayloadHash`, contractDir, "TestAnEnvelopesKeyIsTheFirstFieldThatItHas"},
	{"a queue handles what nothing declares", "catalog/messages.go", `!contracts.Declares(q.Contract, name)`, `false`, catalogs, mistakes},
	{"a body that nothing declares is no body of its queue", "internal/push/event.go", `return retry.Permanent("contract_broken", err)`, `return retry.Unreadable("body_malformed", err)`, pushDir, "TestAQueueOfMessagesHandsThemOver"},
	{"a producer is not told of a version that nothing declares", webhook, `if isUndeclared && to != nil {`, `if isUndeclared && to != nil && from.Name == "" {`, webhookDir, "TestAMessageIsTakenByWhatIsDeclaredOfIt"},
	// Those that let something personal through, or refuse an id.
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
	// Those by which a caller waits, or is let in, in error.
	{"a token whose key is here waits for the key server", signingKeys, "if key != nil {\n\t\treturn key, nil", "if false {\n\t\treturn key, nil",
		tokensDir, "TestAKnownKeyNeverWaitsForAHangingKeyServer"},
	{"keys without renewal are valid for ever", signingKeys, `now.Before(s.fetched.Add(keepFor))`, `true`, tokensDir, "TestAKeyServerDownLater"},
	{"a key server that hangs is asked by every token", signingKeys, `justTried := !s.tried.IsZero() && now.Before(s.tried.Add(refetchAfter))`, `justTried := false`,
		tokensDir, "TestAKnownKeyNeverWaitsForAHangingKeyServer"},
	{"of two claims the last wins", tokenReader, `return json.Unmarshal(text, into)`, `return json.Unmarshal(text, into, jsontext.AllowDuplicateNames(true))`, tokensDir, spelled},
	{"a claim is taken in any letter case", tokenReader, `return json.Unmarshal(text, into)`, `return json.Unmarshal(text, into, json.MatchCaseInsensitiveNames(true))`, tokensDir, spelled},
	{"a date may be a string", tokenReader, `if value.Kind() != '0' {`, `if value = jsontext.Value(strings.Trim(string(value), "\"")); value.Kind() != '0' {`, tokensDir, spelled},
	{"a critical extension is passed over", tokenReader, `case len(header.Critical) > 0:`, `case false:`, tokensDir, "TestBadTokensAreRefused"},
	{"a page is let in under its own name", opsAuth, `case !namesThisMachine(r):`, `case false:`, opsDir, "TestOpenAccessNeedsTheMachinesOwnHost"},
	{"a page of another site may read", opsAuth, `change.Method = http.MethodPost`, `change.Method = r.Method`, opsDir, "TestOpenAccessRefusesOtherSites"},
	{"a change is read in any letter case", opsBody, `json.RejectUnknownMembers(true)`, `json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)`,
		opsDir, "TestAChangeThatNamesSomethingTwiceIsRefused"},
	{"a browser may push", "internal/push/admit.go", `case len(r.Header.Values("Origin")) > 0 ||`, `case false ||`, "internal/worker", "TestABrowserNeitherPushesNorCallsATask"},
}
