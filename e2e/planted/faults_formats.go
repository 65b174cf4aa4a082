package main

const (
	contracts = "internal/contract/set.go"
	bodies    = "internal/contract/body.go"
	walker    = "internal/contract/rules.go"
	byPath    = "TestAMessageIsRefusedByPathAndRule"
)

// faultsOfFormats are those of what messages may say.
var faultsOfFormats = []fault{
	{"a version that is not declared is taken", contracts, `case versions[version] == nil:`, `case versions[version] == nil && len(versions) == 0:`, contractDir, byPath},
	{"a member that is required may be missing", "internal/contract/declare.go", `presence, omit = "required,", ""`, `omit = ""`, contractDir, byPath},
	{"an emission is not held to its contract", contracts, `return body, body.Validate()`, `return body, nil`, contractDir, "TestAnEmissionIsHeldToWhatIsDeclared"},
	{"an amount may have other digits than its currency", walker, `return errors.Is(err, money.ErrCurrency) || (err == nil && minor >= 0)`, `return errors.Is(err, err) || minor >= 0`, contractDir, byPath},
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
	{"a producer is not told of a version that nothing declares", webhook, `if isUndeclared && queue != "" {`, `if isUndeclared && queue == "never" {`, webhookDir, "TestAMessageIsTakenByWhatIsDeclaredOfIt"},
}
