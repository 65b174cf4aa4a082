package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// Texts that differ from run to run.
var (
	moments  = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})`)
	variable = []struct {
		of *regexp.Regexp
		as string
	}{
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "uuid"},
		{regexp.MustCompile(`(\b|%7E)0*1[6-9]\d{14}\b`), "${1}message"},
		{regexp.MustCompile(`\b92\d{17}\b`), "backwards"},
		{regexp.MustCompile(`\b20\d{6}(\d\d)?-\d+\b`), "day-shard"},
		{regexp.MustCompile(`(^|[^:0-9a-f])[0-9a-f]{64}\b`), "${1}hash"},
		{regexp.MustCompile(`(^|devel:)[0-9a-f]{8}$`), "${1}hash"},
		{regexp.MustCompile(`^\(devel\)$|^v0\.0\.0-.*`), "version"},
		{regexp.MustCompile(`[0-9a-f]{8}(-[a-z-]+~~message|-local:[a-z]+~uuid)`), "hash$1"},
		{regexp.MustCompile(`[0-9a-f]{16}-([a-z-]+(~|%7E)message)`), "hash-$1"},
		{regexp.MustCompile(`("version":")[1-9]\d*`), "${1}version"},  // of a record
		{regexp.MustCompile(`"state":"closing"`), `"state":"closed"`}, // a month closes after a while
		{regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`), "whsec_secret"},
		{regexp.MustCompile(`\b2026-11\b`), "<month>"}, // an example in texts
		{regexp.MustCompile(`"version":"\d+"`), `"version":"number"`},
		{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:port"},
		{regexp.MustCompile(`; \d+ % of the attempts failed in the last hour`), ""}, // it depends on the last count
	}
)

// text is a text without what differs from run to run. The samples' own times are whole seconds, months ago.
func (r *surface) text(of string) string {
	of = moments.ReplaceAllStringFunc(of, func(moment string) string {
		at, err := time.Parse(time.RFC3339Nano, moment)
		old := err == nil && at.Before(r.began.AddDate(0, -2, 0)) && at.Nanosecond() == 0
		if old && strings.HasPrefix(moment, "2026-0") {
			return moment
		}
		return "time"
	})
	for name, value := range r.names {
		of = strings.ReplaceAll(of, value, "<"+name+">")
	}
	for _, v := range variable {
		of = v.of.ReplaceAllString(of, v.as)
	}
	return of
}

// shown is a value without what differs from run to run.
func (r *surface) shown(name string, value any) any {
	if as := r.Differs[name]; as != "" && value != nil && value != "" {
		return as
	}
	text, _ := value.(string)
	if name == "version" && text != "" && text != "0" {
		return "version" // of a record; a number is that of a message's contract
	}
	// A month is closed after a minute, and a queue fails until its attempts are counted.
	if as := map[string]string{"closing": "closed", "failing": "ok"}[text]; name == "state" && as != "" {
		return as
	}
	switch v := value.(type) {
	case string:
		return r.text(v)
	case []string:
		for i := range v {
			v[i] = r.text(v[i])
		}
	case json.Number:
		if text := r.text(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.shown(name, v[i])
		}
		if anyOrder(name, v) {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	case map[string]any:
		shown := map[string]any{}
		for member, inner := range v {
			if _, is := inner.(string); is && member == "cause" && v["last_hour"] != nil {
				continue // a queue's cause depends on the last count
			}
			_, number := inner.(json.Number)
			counts := number && v["in"] != nil || // of an hour
				v["breaker_failures"] != nil && slices.Contains([]string{"answers", "instances", "last"}, member)
			if counts || member == "payload_hash" && v["event_type"] == "product.sold" { // its payload has the time
				inner = "counted"
			}
			shown[r.text(member)] = r.shown(member, inner)
		}
		return shown
	}
	return value
}

// anyOrder reports whether the order of a list differs from run to run, as that of parallel events.
func anyOrder(name string, list []any) bool {
	return name == "findings" || !slices.ContainsFunc(list, func(one any) bool {
		member, _ := one.(map[string]any)
		return member["event_id"] == nil
	})
}

func (r *surface) compare() {
	root := filepath.Join("testdata", "surface")
	got := map[string]string{}
	for file, entries := range r.files {
		for i := range entries {
			entries[i] = r.shown("", entries[i])
		}
		if strings.HasPrefix(file, "documents/") { // some have random ids
			slices.SortStableFunc(entries, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		require.NoError(r.t, encoder.Encode(entries))
		got[file+".json"] = text.String()
	}
	if *filetest.Update {
		require.NoError(r.t, os.RemoveAll(root))
	}
	for file, text := range got {
		path := filepath.Join(root, file)
		if *filetest.Update {
			require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
		}
		r.t.Run(file, func(t *testing.T) { filetest.Recorded(t, text, path) })
	}
	recorded := filetest.Must(filepath.Glob(filepath.Join(root, "*", "*.json")))(r.t)
	require.Len(r.t, recorded, len(got), "each file has entries: see the comment of this test")
}
