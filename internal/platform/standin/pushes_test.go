package standin_test

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/platform/standin"
)

// policy is a row of testdata/pushes.yaml, which says what each member is.
type policy struct {
	What, Bound       string
	Ordered, Unsigned bool
	Attempts          int
	Backoff           []time.Duration
	Retention, Until  time.Duration
	Steps             []struct {
		At         time.Duration
		Key, Texts string
	}
	Fails map[string]int
	Want  []string
	Stats standin.Stats
}

func (p policy) config() standin.SimulatorConfig {
	config := plain(func(sub *standin.Subscription) {
		sub.Ordered, sub.Retention = p.Ordered, cmp.Or(p.Retention, sub.Retention)
		if p.Backoff != nil {
			backoff(p.Backoff[0], p.Backoff[1])(sub)
		}
		if p.Attempts > 0 {
			deadLetterAfter(p.Attempts)(sub)
		}
		if p.Bound != "" {
			sub.Filter = routing.Binding{
				Queue: "orders", Patterns: []routing.Pattern{routing.Pattern(p.Bound)},
			}.Filter()
		}
	})
	if p.Unsigned {
		config.Token = func() (string, error) { return "", errors.New("no token now") }
	}
	return config
}

func TestPushesComeAtTheTimesOfTheirSubscriptionsPolicies(t *testing.T) {
	t.Parallel()
	for _, test := range filetest.YAML[[]policy](t, "testdata", "pushes.yaml") {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			filetest.Bubble(t, func(t *testing.T) {
				var publishing sync.Mutex // what is published at once is pushed at once
				refused := map[string]int{}
				s := newBench(t, func(push received) int {
					publishing.Lock()
					defer publishing.Unlock()
					if refused[push.text()] < test.Fails[push.text()] {
						refused[push.text()]++
						return http.StatusInternalServerError
					}
					return http.StatusOK
				}, test.config())
				now := time.Duration(0)
				for _, step := range test.Steps {
					s.advance(step.At - now)
					now = step.At
					publishing.Lock()
					s.publish(step.Key, strings.Fields(step.Texts)...)
					publishing.Unlock()
					synctest.Wait()
				}
				s.advance(test.Until - now)
				require.Equal(t, test.Want, s.worker.moments(test.Ordered))
				require.Equal(t, test.Stats, s.stats())
			})
		})
	}
}
