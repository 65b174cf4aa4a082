package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/access"
	"billhook/internal/platform/serve"
)

var at = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const (
	token = "0123456789abcdef01234567"
	next  = "76543210fedcba9876543210"
	far   = "192.0.2.7:1"
	here  = "127.0.0.1:1"
)

func codeOf(body string) string {
	_, after, _ := strings.Cut(body, `"code":"`)
	code, _, _ := strings.Cut(after, `"`)
	return code
}

// identities accepts the name in a header.
type identities struct{}

func (identities) Identify(_ context.Context, header http.Header) (string, error) {
	switch said := header.Get("X-Test-Identity"); said {
	case "":
		return "", fmt.Errorf("%w: none", serve.ErrNoToken)
	case "away":
		return "", fmt.Errorf("%w: keys", serve.ErrKeysUnavailable)
	case "eve":
		return "", fmt.Errorf("%w: email", serve.ErrNotAllowed)
	case "nobody":
		return "", nil
	case "ada", "token-desk":
		return said + "@example.org", nil
	default:
		return "", errors.New("forged")
	}
}

// statusOf is the status that a refusal of a sender has.
var statusOf = map[string]int{
	"unauthorized": 401, "identity_invalid": 401, "forbidden": 403, "identity_not_allowed": 403, "host_not_local": 403, "cross_origin": 403,
	"operator_invalid": 400, "identity_unavailable": 503,
}

func TestEachSenderIsLetInUnderTheirNameOrRefused(t *testing.T) {
	t.Parallel()
	const bearer = "Bearer " + token
	closed := access.Access{Tokens: []string{token, next}}
	both := access.Access{Tokens: []string{token}, Identifier: identities{}}
	local := access.Access{Tokens: []string{token}, Identifier: identities{}, OpenOnLoopback: true}
	type headers map[string]string
	named := func(name string) headers { return headers{"Authorization": bearer, "X-Operator": name} }
	for name, test := range map[string]struct {
		access access.Access
		peer   string
		headers
		want string // who, or the code of the refusal
	}{
		"the token":                               {closed, far, headers{"Authorization": bearer}, "token"},
		"the new token while it replaces":         {closed, far, headers{"Authorization": "Bearer " + next}, "token"},
		"another token":                           {both, far, headers{"Authorization": "Bearer " + next}, "forbidden"},
		"the beginning of the token":              {closed, far, headers{"Authorization": bearer[:30]}, "forbidden"},
		"an empty token where none is set":        {access.Access{Tokens: []string{""}}, far, headers{"Authorization": "Bearer "}, "forbidden"},
		"the token under another scheme":          {closed, far, headers{"Authorization": "Basic " + token}, "forbidden"},
		"no token":                                {closed, far, nil, "unauthorized"},
		"no token where none is set":              {access.Access{}, far, nil, "unauthorized"},
		"no token from this machine":              {closed, here, nil, "unauthorized"},
		"no token from this machine, open there":  {local, here, nil, "local"},
		"the same over IPv6":                      {local, "[::1]:1", nil, "local"},
		"the same, IPv4 in IPv6":                  {local, "[::ffff:127.0.0.1]:1", nil, "local"},
		"no token from elsewhere, open here":      {local, far, nil, "unauthorized"},
		"no token from an address that is none":   {local, "localhost", nil, "unauthorized"},
		"a wrong token from this machine":         {local, here, headers{"Authorization": "Bearer x"}, "forbidden"},
		"a proxy here":                            {local, here, headers{"X-Forwarded-For": "192.0.2.7"}, "unauthorized"},
		"a proxy here that does not say for whom": {local, here, headers{"X-Forwarded-For": ""}, "unauthorized"},
		"a proxy here, by the standard":           {local, here, headers{"Forwarded": "for=192.0.2.7"}, "unauthorized"},
		"a proxy here that names itself":          {local, here, headers{"Via": "1.1 proxy"}, "unauthorized"},
		"the token, by an address":                {both, far, named("ada@example.org"), "token:ada@example.org"},
		"the token, by a name with a space":       {both, far, named("ada l"), "operator_invalid"},
		"the token, by a name with a line end":    {both, far, named("ada\nwho=eve"), "operator_invalid"},
		"the token, by no name":                   {both, far, named(""), "operator_invalid"},
		"the token, by a long name":               {both, far, named(strings.Repeat("a", 129)), "operator_invalid"},
		"the token, by a long address":            {both, far, named(strings.Repeat("a", 120) + "@example.org"), "operator_invalid"},
		"an identity":                             {both, far, headers{"X-Test-Identity": "ada"}, "ada@example.org"},
		"an identity that goes by another name":   {both, far, headers{"X-Test-Identity": "ada", "X-Operator": "eve"}, "ada@example.org"},
		"an identity beside another's bearer":     {both, far, headers{"X-Test-Identity": "ada", "Authorization": "Bearer x"}, "ada@example.org"},
		"an identity that is not allowed":         {both, far, headers{"X-Test-Identity": "eve"}, "identity_not_allowed"},
		"an identity that is forged":              {both, far, headers{"X-Test-Identity": "x"}, "identity_invalid"},
		"an identity of nobody":                   {both, far, headers{"X-Test-Identity": "nobody"}, "forbidden"},
		"an identity nobody can check now":        {both, far, headers{"X-Test-Identity": "away"}, "identity_unavailable"},
		"an identity where none is looked at":     {closed, far, headers{"X-Test-Identity": "ada"}, "unauthorized"},
		"a forged identity, from here, open":      {local, here, headers{"X-Test-Identity": "x"}, "identity_invalid"},
		"a name and nothing else":                 {both, far, headers{"X-Operator": "ada"}, "unauthorized"},
		"a name, from here, open":                 {local, here, headers{"X-Operator": "ada"}, "local:ada"},
		"a name under a wrong token":              {both, far, headers{"Authorization": "Bearer x", "X-Operator": "ada l"}, "forbidden"},
		"the token while identities are unknown":  {both, far, headers{"Authorization": bearer, "X-Test-Identity": "away"}, "token"},
		"a page of the API's own":                 {local, here, headers{"Sec-Fetch-Site": "same-origin"}, "local"},
		"an address that was typed":               {local, here, headers{"Sec-Fetch-Site": "none"}, "local"},
		"its own origin":                          {local, here, headers{"Origin": "http://localhost:8081"}, "local"},
		"another site's page":                     {local, here, headers{"Sec-Fetch-Site": "cross-site"}, "cross_origin"},
		"another port's page":                     {local, here, headers{"Sec-Fetch-Site": "same-site"}, "cross_origin"},
		"another origin":                          {local, here, headers{"Origin": "https://rebound.example"}, "cross_origin"},
		"another port's origin":                   {local, here, headers{"Origin": "http://localhost:3000"}, "cross_origin"},
		"an origin that is not named":             {local, here, headers{"Origin": "null"}, "cross_origin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who := ""
			site := test.access.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = access.Who(r.Context()) }))
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.RemoteAddr, request.Host = test.peer, "localhost:8081"
			for name, value := range test.headers {
				request.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
			answer := httptest.NewRecorder()
			site.ServeHTTP(answer, request)
			status, refused := statusOf[test.want]
			if !refused {
				require.Equal(t, test.want, who, answer.Body)
				return
			}
			require.Empty(t, who)
			require.Equal(t, []any{status, test.want}, []any{answer.Code, codeOf(answer.Body.String())})
			require.NotContains(t, answer.Body.String(), token)
			require.Equal(t, status == http.StatusUnauthorized, answer.Header().Get("WWW-Authenticate") != "")
			require.Equal(t, status == http.StatusServiceUnavailable, answer.Header().Get("Retry-After") != "")
		})
	}
	two := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	two.Header = http.Header{"Authorization": {bearer}, "X-Operator": {"ada", "eve"}}
	answer := httptest.NewRecorder()
	closed.Guard(http.NotFoundHandler()).ServeHTTP(answer, two)
	require.Equal(t, "operator_invalid", codeOf(answer.Body.String()), "two names")
	require.Empty(t, access.Who(t.Context()))
}
