package samples_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
)

// personal are the members about a person, with all in them, and those with texts of a shop or a buyer.
var personal = []string{
	"name", "steam", "minecraft", "profile", "billing_name", "billing_email", "customer_ip",
	"description", "metadata", "revoke_reason", "content", "discord_user_id", "discord_user_name",
}

// ours are the values of such members that are not personal: the platform, a product's name, and the uid, for
// which the metadata is read.
var ours = []string{"steam", "1000 Points", "Mystery Crate", "VIP", samples.UID}

func TestEveryPersonalValueOfTheSamplesIsListed(t *testing.T) {
	t.Parallel()
	found := 0
	var visit func(t *testing.T, name string, value any, inside bool)
	visit = func(t *testing.T, name string, value any, inside bool) {
		t.Helper()
		inside = inside || slices.Contains(personal, name)
		switch value := value.(type) {
		case map[string]any:
			for member, v := range value {
				visit(t, member, v, inside)
			}
		case []any:
			for _, v := range value {
				visit(t, name, v, inside)
			}
		case string:
			if inside && value != "" && !slices.Contains(ours, value) {
				found++
				require.True(t, slices.ContainsFunc(samples.Personal, func(listed string) bool {
					return strings.Contains(value, listed)
				}),
					"%s: %q is personal, and samples.Personal does not have it", name, value)
			}
		}
	}
	for _, sample := range samples.Names() {
		var document any
		require.NoError(t, json.Unmarshal(samples.Read(sample, samples.Event{}), &document))
		visit(t, "", document, false)
	}
	require.Greater(t, found, 50)
}

// A sample that is sent again under its id repeats the event. Another payload would be a conflict.
func TestMessageOfOneIDIsValidAndAlwaysTheSame(t *testing.T) {
	t.Parallel()
	c := catalogtest.Shipped()
	morning := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	seen := 0
	for _, q := range c.Queues {
		types := slices.DeleteFunc(c.Contracts.Types(q.Contract), func(name string) bool {
			return strings.ContainsAny(name, "*#")
		})
		for _, eventType := range append(types, samples.TypeFor(c, q)) {
			hash := func(unique string, at time.Time) string {
				message := filetest.Must(samples.Message(c, q, eventType, unique, at))(t)
				body, err := c.Contracts.Decode(q.Contract, message)
				require.NoError(t, err, string(message))
				require.NoError(t, body.Validate(), string(message))
				id, made := body.Identity()
				require.Equal(t, []string{samples.IDPrefix + unique, eventType}, []string{id, made})
				return filetest.Must(body.PayloadHash())(t)
			}
			require.Equal(t, hash("a", morning), hash("a", morning.Add(time.Hour)), "%s: %s", q.ID, eventType)
			seen++
		}
	}
	require.Greater(t, seen, 100)
}
