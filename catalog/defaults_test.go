package catalog_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

var settingOfDefaults = regexp.MustCompile(`^( {2,4})([a-z_]+): (.+)$`)

// Every queue has the defaults, and a mistake in them is told where it stands, not at each queue.
func TestAMistakeInADefaultIsNotRepeatedForEveryQueue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("queues.yaml")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	c := from(t, "")
	inDefaults, mutated := false, 0
	for i, line := range lines {
		if line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
			inDefaults = line == "defaults:"
		}
		found := settingOfDefaults.FindStringSubmatch(line)
		if !inDefaults || found == nil {
			continue
		}
		for _, value := range []string{"{ a: 1 }", "-1", `"99999999s"`, "maybe"} {
			lines[i] = found[1] + found[2] + ": " + value
			_, err = c.With(map[string]string{"queues.yaml": strings.Join(lines, "\n")})
			told := catalog.Mistakes(err)
			if !slices.ContainsFunc(told, func(m *catalog.Mistake) bool { return m.Line == i+1 }) {
				continue // by itself it is as good as the value that stands there
			}
			require.LessOrEqual(t, len(told), 5, "%s\n%v", lines[i], err) // with what other settings then contradict
			mutated++
		}
		lines[i] = line
	}
	require.Greater(t, mutated, 100)
}
