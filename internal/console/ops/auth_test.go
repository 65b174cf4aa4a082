package ops_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
)

// identities accepts the name in a header.
type identities struct{}

func (identities) Identify(_ context.Context, header http.Header) (string, error) {
	switch said := header.Get("X-Test-Identity"); said {
	case "":
		return "", fmt.Errorf("%w: none", ops.ErrNoIdentity)
	case "away":
		return "", fmt.Errorf("%w: keys", ops.ErrCannotIdentify)
	case "eve":
		return "", fmt.Errorf("%w: email", ops.ErrNotAllowed)
	case "nobody":
		return "", nil
	case "ada":
		return "ada@example.org", nil
	case "token-desk":
		return "token-desk@shop.example", nil
	default:
		return "", errors.New("forged")
	}
}

func TestTheSenderOfARequestIsIdentified(t *testing.T) {
	t.Parallel()
	const away, near = "192.0.2.7:1", "127.0.0.1:1"
	both := ops.Access{Tokens: []string{token}, Identifier: identities{}}
	local := ops.Access{Tokens: []string{token}, Identifier: identities{}, OpenOnLoopback: true}
	bearer := "Bearer " + token
	for name, test := range map[string]struct {
		access                        ops.Access
		peer, authorization, identity string
		operator                      []string
		status                        int
		want                          string // who, or the problem's code
	}{
		"the token":                              {both, away, bearer, "", nil, 200, "token"},
		"the token, by a name":                   {both, away, bearer, "", []string{"ada"}, 200, "token:ada"},
		"the token, by an address":               {both, away, bearer, "", []string{"ada@example.org"}, 200, "token:ada@example.org"},
		"the token, by a name with a space":      {both, away, bearer, "", []string{"ada l"}, 400, "operator_invalid"},
		"the token, by a name with a line end":   {both, away, bearer, "", []string{"ada\nwho=eve"}, 400, "operator_invalid"},
		"the token, by no name":                  {both, away, bearer, "", []string{""}, 400, "operator_invalid"},
		"the token, by two names":                {both, away, bearer, "", []string{"ada", "eve"}, 400, "operator_invalid"},
		"the token, by a long name":              {both, away, bearer, "", []string{strings.Repeat("a", 129)}, 400, "operator_invalid"},
		"the token, by a long address":           {both, away, bearer, "", []string{strings.Repeat("a", 120) + "@example.org"}, 400, "operator_invalid"},
		"an identity":                            {both, away, "", "ada", nil, 200, "ada@example.org"},
		"an identity that goes by another name":  {both, away, "", "ada", []string{"eve"}, 200, "ada@example.org"},
		"an identity beside another's bearer":    {both, away, "Bearer x", "ada", nil, 200, "ada@example.org"},
		"an identity that is not allowed":        {both, away, "", "eve", nil, 403, "identity_not_allowed"},
		"an identity that is forged":             {both, away, "", "x", nil, 401, "identity_invalid"},
		"an identity of nobody":                  {both, away, "", "nobody", nil, 403, "forbidden"},
		"an identity nobody can check now":       {both, away, "", "away", nil, 503, "identity_unavailable"},
		"a wrong token":                          {both, away, "Bearer x", "", nil, 403, "forbidden"},
		"a name and nothing else":                {both, away, "", "", []string{"ada"}, 401, "unauthorized"},
		"nothing":                                {both, away, "", "", nil, 401, "unauthorized"},
		"nothing, from here":                     {both, near, "", "", nil, 401, "unauthorized"},
		"nothing, from here, open":               {local, near, "", "", nil, 200, "local"},
		"a name, from here, open":                {local, near, "", "", []string{"ada"}, 200, "local:ada"},
		"a forged identity, from here, open":     {local, near, "", "x", nil, 401, "identity_invalid"},
		"an identity where none is looked at":    {ops.Access{Tokens: []string{token}}, away, "", "ada", nil, 401, "unauthorized"},
		"a name under a wrong token":             {both, away, "Bearer x", "", []string{"ada l"}, 403, "forbidden"},
		"the token while identities are unknown": {both, away, bearer, "away", nil, 200, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who := ""
			router := chi.NewRouter()
			router.Use(test.access.Require)
			router.Get("/", func(_ http.ResponseWriter, r *http.Request) { who = ops.Who(r.Context()) })
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.RemoteAddr, request.Host = test.peer, "localhost:8081"
			for name, value := range map[string]string{"Authorization": test.authorization, "X-Test-Identity": test.identity} {
				if value != "" {
					request.Header.Set(name, value)
				}
			}
			request.Header["X-Operator"] = test.operator
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, request)
			require.Equal(t, test.status, answer.Code)
			if test.status == http.StatusOK {
				require.Equal(t, test.want, who)
				return
			}
			require.Empty(t, who)
			require.Contains(t, answer.Body.String(), `"code":"`+test.want+`"`)
			require.NotContains(t, answer.Body.String(), token)
			require.Equal(t, test.status == http.StatusUnauthorized, answer.Header().Get("WWW-Authenticate") != "")
			require.Equal(t, test.status == http.StatusServiceUnavailable, answer.Header().Get("Retry-After") != "")
		})
	}
	require.Empty(t, ops.Who(t.Context()))
}
