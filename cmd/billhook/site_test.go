package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"billhook/catalog"
	opspages "billhook/internal/console/ops/pages"
)

// filledAPI answers every call with a value that has one of everything, and notes what was asked.
type filledAPI struct {
	t     *testing.T
	calls *asked
	empty bool // answers have nothing
}

func (a filledAPI) Call(ctx context.Context, method, path string, _, answer any) error {
	at, _, _ := strings.Cut(path, "?")
	a.calls.add(a.t, method, at)
	if answer != nil && !a.empty {
		fill(reflect.ValueOf(answer).Elem(), 0)
	}
	return ctx.Err()
}

// fill sets what can be set: texts to "sample", numbers to 1, and lists to one of their items. A token of
// a further page stays empty: a list ends.
func fill(v reflect.Value, depth int) {
	if !v.CanSet() || depth > 6 {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)))
		return
	case []byte:
		v.SetBytes([]byte(`{"sample":1}`)) // JSON is bytes too
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("sample")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"sample":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Next" || v.Type().Field(i).Type.Kind() != reflect.String {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("sample"))
		}
	default:
	}
}

// walker goes through the pages as a person does: it looks at each, follows its links, and sends each
// form.
type walker struct {
	t    *testing.T
	site chi.Router
	// links are followed. Where answers are empty they lead nowhere.
	links   bool
	visited map[string]bool
}

// siteOver are the pages over an API, for whoever asks.
func siteOver(t *testing.T, api opspages.Caller) chi.Router {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	site, err := opspages.New(opspages.Config{
		API: api, Guard: func(next http.Handler) http.Handler { return next }, Catalog: c, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now: func() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) },
	})
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	return router
}

var parameterOf = regexp.MustCompile(`\{[a-z_]+\}`)

// all looks at every page that there is a route for, and sends something to each that takes a form.
func (w *walker) all() {
	require.NoError(w.t, chi.Walk(w.site, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(route, "/ops/") || strings.Contains(route, "*") {
			return nil
		}
		path := parameterOf.ReplaceAllStringFunc(route, func(name string) string { return sampleOf(strings.Trim(name, "{}"), "") })
		if method == http.MethodGet {
			w.visit(path, nil)
		} else {
			w.visit(path, url.Values{"why": {sampleOf("why", "")}})
		}
		return nil
	}))
}

// visit asks for a page, once for each set of parameters that it has, and goes on from there.
func (w *walker) visit(address string, form url.Values) {
	at, err := url.Parse(address)
	require.NoError(w.t, err, address)
	found := chi.NewRouteContext()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	if !strings.HasPrefix(at.Path, "/ops/") || !w.site.Match(found, method, at.EscapedPath()) || strings.Contains(found.RoutePattern(), "*") {
		return
	}
	key := fmt.Sprint(method, " ", found.RoutePattern(), slices.Sorted(maps.Keys(at.Query())), slices.Sorted(maps.Keys(form)))
	if w.visited[key] {
		return
	}
	w.visited[key] = true
	request := httptest.NewRequestWithContext(w.t.Context(), method, at.RequestURI(), strings.NewReader(form.Encode()))
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		request.Header.Set("Origin", "http://127.0.0.1:8081")
	}
	answer := httptest.NewRecorder()
	w.site.ServeHTTP(answer, request)
	require.Less(w.t, answer.Code, http.StatusInternalServerError, "%s: %s", key, answer.Body)
	if next := answer.Header().Get("Location"); next != "" {
		w.visit(next, nil)
	}
	document, err := html.Parse(answer.Body)
	require.NoError(w.t, err)
	for node := range document.Descendants() {
		switch node.Data {
		case "form":
			w.send(at, node)
		case "a":
			if !w.links {
				continue
			}
			if to, err := at.Parse(attribute(node, "href")); assert.NoError(w.t, err, key) && to.Host == "" {
				w.visit(to.RequestURI(), nil)
			}
		}
	}
}

// send fills a form in and sends it.
func (w *walker) send(at *url.URL, node *html.Node) {
	form := url.Values{}
	for field := range node.Descendants() {
		name := attribute(field, "name")
		if name == "" {
			continue
		}
		switch value := attribute(field, "value"); field.Data {
		case "input", "button":
			if value == "" {
				value = sampleOf(name, attribute(field, "type"))
			}
			form.Set(name, value)
		case "textarea":
			form.Set(name, sampleOf(name, ""))
		case "select":
			for option := range field.Descendants() {
				if option.Data == "option" && attribute(option, "value") != "" {
					form.Set(name, attribute(option, "value"))
				}
			}
		}
	}
	to, err := at.Parse(attribute(node, "action"))
	require.NoError(w.t, err)
	if strings.EqualFold(attribute(node, "method"), http.MethodPost) {
		w.visit(to.RequestURI(), form)
		return
	}
	to.RawQuery = form.Encode()
	w.visit(to.RequestURI(), nil)
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// sampleOf is what a person would fill in.
func sampleOf(name, kind string) string {
	switch {
	case kind == "number", slices.Contains([]string{"points", "available", "expect", "rate", "limit"}, name):
		return "1"
	case kind == "url", name == "url":
		return "https://partner.example.com/hooks"
	case name == "period", name == "month":
		return "2026-10"
	case kind == "date", name == "as_of":
		return "2026-11-01"
	case slices.Contains([]string{"since", "until", "older_than"}, name):
		return "7d"
	case name == "account":
		return "points:user:sample"
	case name == "why":
		return "a walk of all pages"
	}
	return "sample"
}
