package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestEachMistakeOfANotificationNamesFileAndEvent(t *testing.T) {
	t.Parallel()
	const place = "notifications.yaml: event "
	for sentence, test := range map[string]struct{ rows, want string }{
		"a row without a channel":             {"order.shipped: []", place + "order.shipped: is told on no channel"},
		"a channel that nobody handles":       {"order.shipped: [email, fax]", place + "order.shipped: channel fax is not known: no queue that takes the event emits to one that handles notification.fax.order_shipped"},
		"a channel in capitals":               {"order.shipped: [Email]", place + "order.shipped: channel Email is not known: no queue that takes the event emits to one that handles notification.Email.order_shipped"},
		"a channel of two words":              {"order.shipped: [email.html]", place + "order.shipped: channel email.html is not known: no queue that takes the event emits to one that handles notification.email.html.order_shipped"},
		"a channel twice":                     {"order.shipped: [email, email]", place + `order.shipped: lists email twice`},
		"an event that nobody declares":       {"order.returned: [email]", place + "order.returned: channel email is not known: no queue that takes the event emits to one that handles notification.email.order_returned\n" + place + "order.returned: is declared by no message.v1 contract"},
		"an event that nobody takes":          {"order.created: [email]", place + "order.created: channel email is not known: no queue that takes the event emits to one that handles notification.email.order_created"},
		"a channel that is no list":           {"order.shipped: email", place + "order.shipped: must be a list"},
		"an event twice":                      {"order.shipped: [email]\n  order.shipped: [push]", "notifications.yaml: notifications.order.shipped: the key stands here twice"},
		"a list of events":                    {"[order.shipped]", "notifications.yaml: notifications: must be a map"},
		"nobody is told of anything, in full": {"{}", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c, err := catalog.Load(like(t, ".", map[string]string{"notifications.yaml": "notifications:\n  " + test.rows + "\n"}))
			if test.want != "" {
				requireMistakes(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Empty(t, c.Notifications)
		})
	}
}
