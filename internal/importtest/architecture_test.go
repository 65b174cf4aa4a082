package importtest

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// sections of the architecture page by their headings, in their order.
func sections(t *testing.T) (headings []string, bodies map[string]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	require.NoError(t, err)
	bodies = map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		headings, bodies[heading] = append(headings, heading), body
	}
	return headings, bodies
}

// capitalized begins a floor's name as a heading does.
func capitalized(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

func TestTheArchitecturePageHasAParagraphForEachPackageOnItsFloor(t *testing.T) {
	t.Parallel()
	headings, bodies := sections(t)
	picture := bodies[headings[0]]
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "./...")
	list.Dir = "../.."
	output, err := list.Output()
	require.NoError(t, err)
	tree := strings.Fields(string(output))
	for i, floor := range floors {
		heading := capitalized(floor.name)
		require.Equal(t, heading, headings[i+1], "the floors come in their order, the lowest first")
		var told []string
		for _, match := range regexp.MustCompile("(?m)^\\*\\*`([^`]+)`\\*\\*").FindAllStringSubmatch(bodies[heading], -1) {
			told = append(told, match[1])
		}
		require.ElementsMatch(t, floor.packages, told, "the paragraphs of the floor %s", floor.name)
		for _, p := range floor.packages {
			require.Regexp(t, `\b`+regexp.QuoteMeta(strings.TrimPrefix(p, "internal/"))+`\b`, picture, "the picture")
		}
		for _, path := range tree {
			name := strings.TrimPrefix(path, module)
			if on, _ := floorOf(name); on == i {
				require.Contains(t, bodies[heading], "`"+name+"`", "the floor %s", floor.name)
			}
		}
	}
}

// declarations are the functions, methods and types of the tree, such as push.Service.push,
// and the names of its packages.
func declarations(t *testing.T) (names, packages map[string]bool) {
	t.Helper()
	names, packages = map[string]bool{}, map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		packages[file.Name.Name] = true
		for _, declared := range file.Decls {
			switch declared := declared.(type) {
			case *ast.FuncDecl:
				names[file.Name.Name+"."+receiver(declared)+declared.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range declared.Specs {
					if of, ok := spec.(*ast.TypeSpec); ok {
						names[file.Name.Name+"."+of.Name.Name] = true
					}
				}
			}
		}
		return nil
	}))
	return names, packages
}

// receiver is the type that a method belongs to, with a dot; empty for a function.
func receiver(f *ast.FuncDecl) (name string) {
	if f.Recv == nil {
		return ""
	}
	ast.Inspect(f.Recv.List[0].Type, func(node ast.Node) bool {
		if identifier, ok := node.(*ast.Ident); ok && name == "" {
			name = identifier.Name + "."
		}
		return name == ""
	})
	return name
}

func TestTheFunctionsOfTheArchitecturePageExist(t *testing.T) {
	t.Parallel()
	names, packages := declarations(t)
	_, bodies := sections(t)
	seen := 0
	for _, body := range bodies {
		for _, match := range regexp.MustCompile("`(([a-z]+)\\.[A-Za-z]+(?:\\.[A-Za-z]+)?)`").FindAllStringSubmatch(body, -1) {
			if !packages[match[2]] || match[2] == "main" {
				continue
			}
			require.True(t, names[match[1]], "the page names %s", match[1])
			seen++
		}
	}
	require.Greater(t, seen, 40)
}

// secret signs the webhooks of the walks.
const secret = "architecture-secret-of-24-bytes"

// recorder keeps all that a stack commits, publishes, answers and logs, as JSON.
type recorder struct {
	mu   sync.Mutex
	all  []any
	news chan struct{}
}

func (r *recorder) add(value any) {
	encoded, err := json.Marshal(value)
	var decoded any
	if err != nil || json.Unmarshal(encoded, &decoded) != nil {
		return
	}
	r.mu.Lock()
	r.all = append(r.all, decoded)
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Write takes a log line.
func (r *recorder) Write(line []byte) (int, error) {
	r.add(json.RawMessage(bytes.Clone(line)))
	return len(line), nil
}

// has reports whether want is a part of anything that was recorded.
func (r *recorder) has(want any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all, func(got any) bool { return partOf(want, got) })
}

// await waits until the JSON in want is a part of something.
func (r *recorder) await(t *testing.T, want string) {
	t.Helper()
	var decoded any
	require.NoError(t, json.Unmarshal([]byte(want), &decoded))
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !r.has(decoded) {
		select {
		case <-r.news:
		case <-patience.Done():
			require.Fail(t, "never seen", want)
		}
	}
}

// partOf reports whether want is got, but for members of objects that it leaves out and for
// text that it replaces by an ellipsis.
func partOf(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		of, ok := got.(map[string]any)
		for name, value := range want {
			ok = ok && partOf(value, of[name])
		}
		return ok
	case []any:
		of, ok := got.([]any)
		return ok && slices.EqualFunc(want, of, partOf)
	case string:
		text, ok := got.(string)
		parts := strings.Split(want, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		return ok && regexp.MustCompile("^"+strings.Join(parts, ".+")+"$").MatchString(text)
	default:
		return want == got
	}
}

// publisher records what is published, and hides the rest of a publisher.
type publisher struct {
	webhook.Publisher
	to *recorder
}

func (p publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	p.to.add(map[string]any{"topic": topic, "orderingKey": m.OrderingKey, "attributes": m.Attributes, "data": json.RawMessage(m.Data)})
	return p.Publisher.Publish(ctx, topic, m)
}

// commits returns a store that records the writes of the commits that succeed.
func commits(s store.Store, to *recorder) store.Store {
	return &storetest.Faults{Store: s, OnCommit: func(_ context.Context, writes []store.Write, do func() error) error {
		err := do()
		for _, w := range writes {
			if err == nil {
				to.add(map[string]any{"collection": w.Key.Collection, "id": w.Key.ID, "fields": w.Fields})
			}
		}
		return err
	}}
}

// walk is a recorded stack.
type walk struct {
	*recorder
	stack *devstack.Stack
}

func newWalk(t *testing.T) walk {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for i := range c.Queues {
		c.Queues[i].Backoff.Base = 2100 * time.Millisecond // just too long to wait in the request
		for name, h := range c.Queues[i].Handlers {
			h.Backoff.Base = c.Queues[i].Backoff.Base
			c.Queues[i].Handlers[name] = h
		}
	}
	w := walk{recorder: &recorder{news: make(chan struct{}, 1)}}
	w.stack, err = devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "architecture", Secrets: map[string][]string{"paynow": {secret}, "generic": {secret}},
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		Log:           telemetry.NewLogger(w, nil),
		WrapStore:     func(s store.Store) store.Store { return commits(s, w.recorder) },
		WrapPublisher: func(_ string, p webhook.Publisher) webhook.Publisher { return publisher{p, w.recorder} },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.stack.Close()) })
	return w
}

// ask sends a request and records the answer, which it returns.
func (w walk) ask(t *testing.T, method, url, body string, headers map[string]string) (answer map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Less(t, response.StatusCode, http.StatusMultipleChoices)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	w.add(answer)
	return answer
}

// send posts a sample as PayNow does.
func (w walk) send(t *testing.T, sample string) {
	t.Helper()
	signer, err := signature.NewSigner(signature.PayNow, secret)
	require.NoError(t, err)
	body := samples.Read(sample, samples.Event{})
	w.ask(t, http.MethodPost, w.stack.WebhookURL+"/webhooks/paynow", string(body), signer.Sign("", body, time.Now()))
}

func TestTheWalksOfTheArchitecturePageShowWhatARunShows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		headings []string
		take     func(t *testing.T, w walk)
	}{
		"a webhook, and a push with a retry": {
			[]string{"A webhook, from POST to 202", "A push, from POST to 200, with a retry"},
			func(t *testing.T, w walk) {
				w.send(t, samples.Refund)
				w.await(t, `{"message":"delivery","reason":"order_not_seen"}`)
				w.send(t, samples.OrderCompleted)
				w.await(t, `{"message":"delivery","reason":"credited"}`)
				w.await(t, `{"message":"delivery","reason":"reversed"}`)
			},
		},
		"a replay": {
			[]string{"A replay of a dead letter"},
			func(t *testing.T, w walk) {
				w.send(t, samples.UnknownProduct)
				w.await(t, `{"message":"dead letter kept"}`)
				w.await(t, `{"message":"delivery","outcome":"dead_lettered"}`)
				ops := w.stack.WorkerURL + "/v1/ops"
				w.ask(t, http.MethodPut, ops+"/products/502113004410000777", `{"points":500,"why":"sold since today"}`, nil)
				begun := w.ask(t, http.MethodPost, ops+"/dead-letters/replay", `{"queue":"paynow-events","why":"product added","expect":1}`, nil)
				w.ask(t, http.MethodPost, ops+"/operations/"+begun["id"].(string)+"/run", "", nil)
				w.await(t, `{"message":"delivery","reason":"credited"}`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWalk(t)
			test.take(t, w)
			_, bodies := sections(t)
			for _, heading := range test.headings {
				blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(bodies[heading], -1)
				require.GreaterOrEqual(t, len(blocks), 3, heading)
				for _, block := range blocks {
					var shown any
					require.NoError(t, json.Unmarshal([]byte(block[1]), &shown), block[1])
					require.True(t, w.has(shown), "%s: no run shows %s", heading, block[1])
				}
			}
		})
	}
}
