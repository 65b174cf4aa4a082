package pages

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"billhook/docs/reference"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

type frame struct {
	Data any
	// Until is the end of the session; zero: there is none. Signs: the person may sign in or out.
	Who         audit.Author
	Until       time.Time
	Signs       bool
	Environment string
	Live        bool
	Path        string
	Now         time.Time
	Problem     *serve.Problem
	Skipped     string
	// Form is a refused form as it was filled in, else the query.
	Form url.Values
}

type link struct {
	Address, Name string
	Current       bool
}

// entry returns a link of the menu, which is current if the page is at its address or below it.
func entry(address, to, name string) link {
	address, _, _ = strings.Cut(address, "?")
	return link{to, name, address == to || (to != "/ops/" && strings.HasPrefix(address, to+"/"))}
}

func title(word string) string {
	begins := min(1, len(word))
	return strings.ToUpper(word[:begins]) + strings.NewReplacer("_", " ", "-", " ").Replace(word[begins:])
}

func named(o console.Operation, id string) string {
	one := o.Noun()
	if one != "status" {
		one = strings.TrimSuffix(one, "s")
	}
	words, known := names[o.Name]
	switch did := verb(o); {
	case known:
	case did == "ls":
		words = title(o.Noun())
	case did == "show" || did == "":
		words = title(one)
	case o.Needs == console.Look:
		words = title(one) + " " + did
	default:
		words = title(did) + " " + one
	}
	return strings.TrimSpace(words + " " + id)
}

var names = map[string]string{
	"catalog contract": "Contract", "catalog show": "Catalog of queue", "customers preview": "Customer",
	"dlq ls": "Dead letters", "dlq payload": "Payload of dead letter", "dlq preview": "Preview of dead letters",
	"dlq reasons": "Dead letters by reason", "events payload": "Payload of event",
	"journal show": "Entry", "journal revert": "Revert entry", "journal tenants": "Tenants with books",
	"ledger prove": "Proof of entry", "ledger verify": "Verify the books",
}

func verb(o console.Operation) string { return did(o.Verb()) }

func did(verb string) string {
	return cmp.Or(map[string]string{"rm": "remove", "complete": "complete by hand"}[verb], verb)
}

func about(o console.Operation) string {
	text := strings.TrimPrefix(strings.TrimPrefix(o.Summary, "List "), "Show ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// tone is the colour of a state: ok, busy, warn, bad or mute.
func tone(state any) string {
	if console.Alerts(state) {
		return "bad"
	}
	switch strings.ToLower(fmt.Sprint(state)) {
	case "ok", "same", "completed", "processed", "finished", "enabled", "closed", "success",
		"corrected", "refunded":
		return "ok"
	case "processing", "running", "replayed", "waiting", "under_way", "half-open":
		return "busy"
	case "failed", "retry", "paused", "waiting_for_approval", "failing", "differs", "duplicate", "superseded",
		"backlog", "off_waiting":
		return "warn"
	case "dead_lettered", "dead_letter", "alert", "conflict", "refused", "error", "breaker_open", "pause_failed":
		return "bad"
	default:
		return "mute"
	}
}

// templates has the pages' templates by file name, with the shared parts. Each is parsed at its first use.
var templates = func() map[string]func() *template.Template {
	layout := sync.OnceValue(func() *template.Template {
		made := template.New("layout.html").Funcs(functions)
		return template.Must(made.ParseFS(files, "templates/layout.html", "templates/partials*.html"))
	})
	all := map[string]func() *template.Template{}
	found, _ := files.ReadDir("templates") // it is embedded
	for _, file := range found {
		all[file.Name()] = sync.OnceValue(func() *template.Template {
			return template.Must(template.Must(layout().Clone()).ParseFS(files, "templates/"+file.Name()))
		})
	}
	return all
}()

var functions = template.FuncMap{
	"static": static, "entry": entry, "when": when, "marked": marked, "number": number, "href": href, "of": of,
	"params": with, "tone": tone,
	"known":     func(code any) bool { return reference.Entries(fmt.Sprint(code)) != nil },
	"iso":       func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"words":     func(state any) string { return strings.ReplaceAll(fmt.Sprint(state), "_", " ") },
	"lastMonth": func(period string) string { return period[strings.Index(period, "/")+1:] },
	"decimal":   func(minor int64, currency string) string { return grouped(money.Text(minor, currency)) },
	"runbook": func(name string) string {
		return "/ops/runbooks/" + strings.Replace(path.Base(name), ".md", "", 1)
	},
	"verb":  func(kind any) string { return title(did(fmt.Sprint(kind))) },
	"began": func(who string, by audit.Author) bool { return audit.SamePerson(who, by.String()) },
	"ends":  func(who string, by audit.Author) bool { return audit.TwoPeople(who, by) == nil },
	"pick":  func(table grid) grid { table.Choose = true; return table },
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

var (
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	codes  = regexp.MustCompile(`\b([a-z][a-z0-9]*(_[a-z0-9]+)+|[A-Z]\w*[A-Z_]\w*)\b`)
)

// marked returns a text with its times marked, and with links from unmistakable codes to what they mean.
func marked(text string) template.HTML {
	escaped := stamps.ReplaceAllStringFunc(template.HTMLEscapeString(text), func(stamp string) string {
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return `<time datetime="` + stamp + `">` + when(at) + `</time>`
	})
	linked := codes.ReplaceAllStringFunc(escaped, func(code string) string {
		if reference.Entries(code) == nil {
			return code
		}
		return `<a href="` + console.Codes + code + `">` + code + `</a>`
	})
	return template.HTML(linked) //nolint:gosec // it is escaped
}

func number(n any) string { return grouped(fmt.Sprint(n)) }

func grouped(text string) string {
	digits := strings.TrimPrefix(text, "-")
	end := len(digits) - len(strings.TrimLeft(digits, "0123456789"))
	whole := digits[:end]
	for at := end - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	return strings.TrimSuffix(text, digits) + whole + digits[end:]
}

// href returns an address with its arguments escaped.
func href(format string, args ...string) string {
	escaped := make([]any, len(args))
	for i, arg := range args {
		escaped[i] = url.PathEscape(arg)
	}
	return fmt.Sprintf(format, escaped...)
}

// of adds the tenant to an address, unless it is the default tenant.
func of(address, tenant string) string {
	if tenant == dedupe.DefaultTenant {
		tenant = ""
	}
	return with(address, "tenant", tenant)
}

// with returns an address with parameters, given as names and values. An empty value removes its parameter.
func with(address string, pairs ...string) string {
	before, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query) // malformed parameters are left out
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			values.Del(pairs[i])
		} else {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return before
	}
	return before + "?" + values.Encode()
}

func (v *visit) next(token string) string {
	if token == "" {
		return ""
	}
	return with(v.request.URL.RequestURI(), "page", token)
}

func (p *Pages) render(v *visit, status int, file string, data any) {
	values := v.request.URL.Query()
	if len(v.request.PostForm) > 0 {
		values = v.request.PostForm
	}
	who, until := access.Author(v.ctx), access.SessionEnd(v.ctx)
	var page bytes.Buffer
	err := templates[file]().Execute(&page, frame{
		Data: data, Who: who, Until: until, Environment: p.Environment, Live: p.Live, Form: values,
		Path: v.request.URL.RequestURI(), Now: v.now, Problem: v.problem, Skipped: v.skipped.String(),
		Signs: !until.IsZero() || (who.Name == "" && who.String() != "" && p.signsIn(v.request)),
	})
	if err != nil {
		p.Log.LogAttrs(v.ctx, slog.LevelError, "ops page not rendered", slog.String("template", file),
			slog.String("error", err.Error()))
		errFailed.Write(v.w)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.WriteHeader(status)
	_, _ = v.w.Write([]byte(audit.EscapeLines(page.String()))) // the client is gone
}

// policy lets a page load its own style and script, talk to its own origin, and be in no frame.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src " +
	"'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

var secured = chi.Chain(
	middleware.SetHeader("Content-Security-Policy", policy),
	middleware.SetHeader("X-Content-Type-Options", "nosniff"),
	middleware.SetHeader("Cache-Control", "no-store"),
	middleware.SetHeader("Referrer-Policy", "no-referrer"),
	middleware.SetHeader("Cross-Origin-Opener-Policy", "same-origin"),
)

// zipped compresses pages. No page has a secret beside the text of somebody else, so the length of an answer
// reveals no secret.
var zipped = middleware.Compress(gzip.DefaultCompression, "text/html", "text/css", "text/javascript")

// static returns the address of a file, with a hash of its contents.
func static(name string) string {
	body, _ := files.ReadFile("static/" + name) // a missing file is answered with 404
	sum := sha256.Sum256(body)
	return "/ops/static/" + hex.EncodeToString(sum[:6]) + "/" + name
}

func (p *Pages) static(w http.ResponseWriter, r *http.Request) {
	name := path.Base(chi.URLParam(r, "*"))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if static(name) != r.URL.Path { // the page is of another release, with another file
		w.Header().Set("Cache-Control", "no-store")
	}
	http.ServeFileFS(w, r, files, "static/"+name)
}
