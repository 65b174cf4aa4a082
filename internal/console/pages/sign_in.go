package pages

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/access"
	"billhook/internal/platform/serve"
)

const signInPath = "/ops/sign-in"

// signInRoutes adds signing in and out. Signing in is a change: another site must not sign a person in.
func (p *Pages) signInRoutes(r chi.Router) {
	p.change(r, "/sign-in", "sign_in.html", func(v *visit) (any, error) {
		form := signIn{To: own(cmp.Or(v.form("to"), v.query("to"))), Name: v.form("name")}
		form.Token, form.Asks = p.Sessions.Form(v.request)
		return form, nil
	}, func(v *visit) (string, error) {
		token, name := strings.TrimSpace(v.form("token")), strings.TrimSpace(v.form("name"))
		cookie, err := p.Sessions.SignIn(v.request, token, name)
		if err == nil {
			http.SetCookie(v.w, cookie)
		}
		return own(v.form("to")), err
	})
	r.Post("/sign-out", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, p.Sessions.SignOut(r))
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	})
}

// signIn is what the form shows. The token is never shown again.
type signIn struct {
	// Asks: there is something to fill in. Token: a token is needed.
	Asks, Token bool
	To, Name    string
}

func own(address string) string {
	const overview = "/ops/"
	to, err := url.Parse(address)
	if err != nil || to.Scheme != "" || to.Host != "" || to.User != nil || to.Opaque != "" ||
		strings.ContainsAny(address, "\\\r\n\t") || strings.HasPrefix(to.Path, signInPath) ||
		!strings.HasPrefix(to.Path, overview) || !strings.HasPrefix(path.Clean(to.Path)+"/", overview) {
		return overview
	}
	return to.RequestURI()
}

func (p *Pages) fromHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if problem := access.OwnPage(r); problem != nil {
			p.refuse(w, r, problem)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers people who are not admitted. Without a session they are sent to the form. A browser that
// follows a link from another site sends no cookie, so a page of ours loads the address again.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, problem *serve.Problem) {
	v, looks := p.visit(w, r), r.Method == http.MethodGet || r.Method == http.MethodHead
	mode, dest := r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	switch {
	case problem.Code == "cross_origin" && looks && mode == "navigate" && dest == "document":
		w.Header().Set("Refresh", "0; url="+own(r.URL.RequestURI()))
		p.render(v, http.StatusOK, "elsewhere.html", own(r.URL.RequestURI()))
	case problem.Status == http.StatusUnauthorized && looks && p.signsIn(r):
		http.Redirect(w, r, with(signInPath, "to", own(r.URL.RequestURI())), http.StatusSeeOther)
	default:
		p.fail(v, problem)
	}
}

func (p *Pages) signsIn(r *http.Request) bool {
	_, asks := p.Sessions.Form(r)
	return asks
}

var errNameless = serve.Refuse(http.StatusForbidden, "name_needed",
	"Say who you are before you change something: sign in with your name, go back, and send it again.")

// named refuses changes by people without a name if they can sign in with one: the audit needs it.
func (p *Pages) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case access.Author(r.Context()).Name != "", !p.signsIn(r):
			next.ServeHTTP(w, r)
		case r.Method == http.MethodGet:
			http.Redirect(w, r, with(signInPath, "to", own(r.URL.RequestURI())), http.StatusSeeOther)
		default:
			p.fail(p.visit(w, r), errNameless)
		}
	})
}
