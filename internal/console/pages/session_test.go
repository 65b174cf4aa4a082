package pages_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/access"
)

func TestPeopleSignInAndOut(t *testing.T) {
	t.Parallel()
	const far = "192.0.2.7:1"
	h := openHouse(t, access.Access{Tokens: []string{opsToken}})
	w := h.visits(t, http.MethodGet, "/ops/events?queue=x", nil, from(far))
	require.Equal(t, http.StatusSeeOther, w.Code)
	form := w.Header().Get("Location")
	require.Equal(t, "/ops/sign-in?to=%2Fops%2Fevents%3Fqueue%3Dx", form)
	page := h.visits(t, http.MethodGet, form, nil, from(far)).Body.String()
	require.Contains(t, page, `value="/ops/events?queue=x"`)
	require.Contains(t, page, `type="password"`)

	w = h.visits(t, http.MethodPost, "/ops/sign-in",
		url.Values{"token": {"guessed-" + opsToken}, "name": {"ada"}, "to": {"/ops/events?queue=x"}}, from(far))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Empty(t, w.Result().Cookies())
	require.Contains(t, w.Body.String(), "This token is not accepted.")
	require.Contains(t, w.Body.String(), `value="ada"`)
	require.NotContains(t, w.Body.String(), opsToken, "what was typed is not shown")

	w = h.visits(t, http.MethodPost, "/ops/sign-in",
		url.Values{"token": {" " + opsToken + "\n"}, "name": {"ada "}, "to": {"/ops/events?queue=x"}}, from(far))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/ops/events?queue=x", w.Header().Get("Location"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	cookies := w.Result().Cookies()
	page = h.visits(t, http.MethodGet, "/ops/events", nil, from(far, cookies...)).Body.String()
	require.Contains(t, page, "You are token:ada until 2026-11-23 00:00:00 UTC.")
	require.Contains(t, page, "Sign out")

	w = h.visits(t, http.MethodPost, "/ops/sign-out", url.Values{}, from(far, cookies...))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Negative(t, w.Result().Cookies()[0].MaxAge)
	lost := h.visits(t, http.MethodPost, "/ops/products/x/set", url.Values{"why": {"w"}}, from(far))
	require.Equal(t, http.StatusUnauthorized, lost.Code)
	require.Contains(t, lost.Body.String(), "Nothing was changed.")
}

func TestASignInLeadsToThesePagesAlone(t *testing.T) {
	t.Parallel()
	h := openHouse(t, local)
	for to, want := range map[string]string{
		"/ops/events/e1?queue=x": "/ops/events/e1?queue=x", "/ops/customers/a%2Fb": "/ops/customers/a%2Fb",
		"/ops/": "/ops/", "": "/ops/",
		"https://evil.example/ops/": "/ops/", "//evil.example/ops/": "/ops/", `/\evil.example/ops/`: "/ops/",
		"/ops/../../evil": "/ops/", "/ops/..//evil.example": "/ops/",
		"javascript:alert(1)": "/ops/", "/v1/ops/events": "/ops/",
		"/opsx": "/ops/", "/ops/\r\nSet-Cookie: a=b": "/ops/", "/ops/sign-in?to=/ops/": "/ops/", "ops/": "/ops/",
		"/ops/\tx":   "/ops/",
		"http:/ops/": "/ops/", "//user@evil.example/ops/": "/ops/",
	} {
		w := h.visits(t, http.MethodPost, "/ops/sign-in", url.Values{"name": {"ada"}, "to": {to}}, nil)
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, want, w.Header().Get("Location"), "%q", to)
	}
}

func TestOnThisMachineToLookTakesNoNameAndAChangeDoes(t *testing.T) {
	t.Parallel()
	h := openHouse(t, local)
	page := h.visits(t, http.MethodGet, "/ops/", nil, nil)
	require.Equal(t, http.StatusOK, page.Code)
	require.Contains(t, page.Body.String(), "Sign in with your name")
	w := h.visits(t, http.MethodGet, "/ops/products/x/set", nil, nil)
	require.Equal(t, "/ops/sign-in?to=%2Fops%2Fproducts%2Fx%2Fset", w.Header().Get("Location"))
	require.NotContains(t, h.visits(t, http.MethodGet, "/ops/sign-in", nil, nil).Body.String(),
		`type="password"`)
	w = h.visits(t, http.MethodPost, "/ops/products/x/set", url.Values{"why": {"w"}}, nil)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "Say who you are")
	require.Equal(t, http.StatusOK, h.visits(t, http.MethodGet, "/ops/products/x/set", nil,
		h.signedIn(t, "ada")).Code)
}
