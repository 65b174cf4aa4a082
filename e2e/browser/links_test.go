package browser

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"billhook/internal/console/ops"
)

// loads returns the status of a page, and the addresses of our own that it links to.
func (s *shop) loads(t *testing.T, path string) (status int, links []string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.WorkerURL+path, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	tree, err := html.Parse(strings.NewReader(string(page)))
	require.NoError(t, err)
	for node := range tree.Descendants() {
		for _, a := range node.Attr {
			if node.Data == "a" && a.Key == "href" && strings.HasPrefix(a.Val, "/") {
				links = append(links, a.Val)
			}
		}
	}
	return response.StatusCode, links
}

func TestNoLinkOfAnEventPageLeadsToNotFound(t *testing.T) {
	onlyInFull(t)
	s := openShop(t)
	defer s.close()
	s.fill(t)
	followed, events := map[string]bool{}, 0
	for path := "/v1/ops/events?limit=100"; path != ""; {
		var list ops.List[ops.Line]
		s.get(t, path, &list)
		for _, line := range list.Items {
			events++
			page := "/ops/events/" + url.PathEscape(line.EventID) + "?" + url.Values{"queue": {line.Queue}, "tenant": {line.Tenant}}.Encode()
			status, links := s.loads(t, page)
			require.Equal(t, http.StatusOK, status, page)
			for _, link := range links {
				if followed[link] {
					continue
				}
				followed[link] = true
				status, _ := s.loads(t, link)
				assert.Equal(t, http.StatusOK, status, "%s, %s in %s, links to %s", page, line.EventType, line.Queue, link)
			}
		}
		if path = ""; list.Next != "" {
			path = "/v1/ops/events?limit=100&page=" + url.QueryEscape(list.Next)
		}
	}
	require.Greater(t, events, 50)
	require.Greater(t, len(followed), 100)
}
