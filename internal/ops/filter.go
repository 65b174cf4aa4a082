package ops

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// asked is what a request asks for, and the first thing that is wrong with it.
type asked struct {
	values url.Values
	bad    *serve.Problem
}

// read takes the parameters of a request. It refuses each that is not known, comes
// twice or is empty: a filter that is passed over shows too much.
func read(r *http.Request, known ...string) *asked {
	a := &asked{}
	var err error
	if a.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		a.refuse("query_invalid", "The query string is malformed.")
	}
	for name, given := range a.values {
		switch {
		case !slices.Contains(known, name):
			a.refuse("parameter_unknown", "This takes "+strings.Join(known, ", ")+" and no other parameter.")
		case len(given) != 1 || given[0] == "":
			a.refuse("parameter_invalid", "Give each parameter once, with a value.")
		}
	}
	return a
}

// refuse keeps the first reason.
func (a *asked) refuse(code, detail string) {
	if a.bad == nil {
		a.bad = serve.Refuse(http.StatusBadRequest, code, detail)
	}
}

// err is the first thing that is wrong, if anything is.
func (a *asked) err() error {
	if a.bad == nil {
		return nil
	}
	return a.bad
}

// id is an identifier, or empty where none is asked for.
func (a *asked) id(name string) string {
	value := a.values.Get(name)
	if value != "" && !pii.ID.Valid(value) {
		a.refuse(name+"_invalid", "The parameter "+name+" has letters, digits and . _ : - only.")
	}
	return value
}

// key is an ordering key, which may be a uid and so has a bar, or empty.
func (a *asked) key(name string) string {
	value := a.values.Get(name)
	if value != "" && !pii.UID.Valid(value) {
		a.refuse(name+"_invalid", "The parameter "+name+" has letters, digits and . _ : | - only.")
	}
	return value
}

// queue is the id of the queue of that name or alias.
func (a *asked) queue(c *catalog.Catalog) string {
	name := a.values.Get("queue")
	if name == "" {
		return ""
	}
	q, ok := c.Queue(name)
	if !ok {
		a.refuse("queue_unknown", "The catalog has no queue of that name or alias; GET /v1/ops/queues lists them.")
	}
	return q.ID
}

// statuses in the order of an event's life.
var statuses = []dedupe.Status{dedupe.Processing, dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}

func (a *asked) status() string {
	value := strings.ToUpper(a.values.Get("status"))
	if value != "" && !slices.Contains(statuses, dedupe.Status(value)) {
		a.refuse("status_unknown", "A status is PROCESSING, COMPLETED, FAILED or DEAD_LETTERED.")
	}
	return value
}

// limit is how many items a page may hold.
func (a *asked) limit(standard, most int) int {
	text := a.values.Get("limit")
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		a.refuse("limit_invalid", fmt.Sprintf("The parameter limit is a number from 1 to %d.", most))
	}
	return n
}

// at is a moment, given as such or as an age, or otherwise where none is asked for.
func (a *asked) at(name string, now, otherwise time.Time) time.Time {
	text := a.values.Get(name)
	if text == "" {
		return otherwise
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC()
	}
	age, err := parseAge(text)
	if err != nil {
		a.refuse(name+"_invalid", "The parameter "+name+" is a time such as 2026-11-21T09:00:00Z or an age such as 36h or 7d.")
	}
	return now.Add(-age)
}

// flag is true or false.
func (a *asked) flag(name string) bool {
	value := a.values.Get(name)
	if value != "" && value != "true" && value != "false" {
		a.refuse(name+"_invalid", "The parameter "+name+" is true or false.")
	}
	return value == "true"
}

// maxAge bounds an age: longer is a slip of the pen.
const maxAge = 10 * 366 * 24 * time.Hour

// parseAge reads an age such as 90m, 36h or 7d: days alone, or a Go duration. It is
// positive and at most ten years.
func parseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		var days uint64
		if days, err = strconv.ParseUint(number, 10, 12); err == nil {
			age = time.Duration(days) * 24 * time.Hour
		}
	}
	if err != nil || age <= 0 || age > maxAge {
		return 0, errors.New("ops: an age is such as 90m, 36h or 7d")
	}
	return age, nil
}

// place is where a list goes on: behind an id, within an hour or, where Hour is empty,
// in the whole collection. The span of time is that of the first page: ages that were
// given count from then.
type place struct {
	since, until time.Time
	hour, id     string
}

// page reads the token of a page, or returns first where there is none. The token says
// where to go on and nothing about who may; one that does not go with the list and its
// filters, or that names a place outside them, is refused.
func (a *asked) page(list string, first place) place {
	text := a.values.Get("page")
	if text == "" {
		return first
	}
	p, ok := parsePlace(text, a.print(list))
	switch {
	case !ok, p.hour == "" != (first.hour == ""),
		p.hour != "" && (p.hour > newest(p) || p.hour < dedupe.Hour(p.since) || p.until.Sub(p.since) > longest+ahead):
		a.refuse("page_invalid", "This page token is not of this list with these filters; start again without one.")
	}
	return p
}

// token is what asks for the page that begins at the place.
func (a *asked) token(list string, p place) string {
	text := strings.Join([]string{a.print(list), strconv.FormatInt(p.since.UnixMicro(), 10), strconv.FormatInt(p.until.UnixMicro(), 10), p.hour, p.id}, "|")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// print tells lists and their filters apart.
func (a *asked) print(list string) string {
	filters := url.Values{}
	for name, given := range a.values {
		if name != "page" && name != "limit" {
			filters[name] = given
		}
	}
	sum := sha256.Sum256([]byte(list + "?" + filters.Encode()))
	return hex.EncodeToString(sum[:8])
}

// maxToken bounds what is decoded: an id and a little more.
const maxToken = 2 * store.MaxIDBytes

func parsePlace(text, print string) (place, bool) {
	if len(text) > maxToken {
		return place{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return place{}, false
	}
	parts := strings.SplitN(string(raw), "|", 5)
	if len(parts) != 5 || parts[0] != print {
		return place{}, false
	}
	since, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return place{}, false
	}
	until, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return place{}, false
	}
	p := place{since: time.UnixMicro(since).UTC(), until: time.UnixMicro(until).UTC(), hour: parts[3], id: parts[4]}
	if p.hour != "" {
		if at, err := time.Parse("2006-01-02T15", p.hour); err != nil || dedupe.Hour(at) != p.hour {
			return place{}, false
		}
	}
	return p, p.id == "" || store.CheckKey(store.Key{Collection: dedupe.Collection, ID: p.id}) == nil
}
