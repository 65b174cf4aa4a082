package main

const (
	signingKeys = "internal/gcp/auth/keys.go"
	tokenReader = "internal/gcp/auth/token.go"
	tokensDir   = "internal/gcp/auth"
	opsAuth     = "internal/ops/auth.go"
	opsBody     = "internal/ops/api.go"
	opsDir      = "internal/ops"

	spelled = "TestClaimsAndHeadersAreReadExactly"
)

// faultsOfTokens are those by which a caller waits, or is let in, in error.
var faultsOfTokens = []fault{
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
