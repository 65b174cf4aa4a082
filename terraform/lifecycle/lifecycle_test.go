package lifecycle_test

import (
	"testing"
)

func shop() variables {
	return variables{
		"project_id": "demo-proj", "region": region, "firestore": variables{"location": "eur3"}, "runbooks": "https://example.com/runbooks",
		"target_urls": variables{
			"SUBSCRIPTION_SERVICE_URL": "https://subscriptions.example", "PLATFORM_URL": "https://platform.example", "GATEWAY_URL": "https://gateway.example",
			"NOTIFICATION_SERVICE_URL": "https://notifications.example", "SEARCH_URL": "https://search.example", "ANALYTICS_URL": "https://analytics.example",
		},
	}
}

func TestFirst(t *testing.T) {
	i := empty(t, shop())
	t.Log(i.apply())
	t.Log(i.refused())
	i.fill()
	i.with(variables{"images": images('a')}).apply()
	i.settled()
}
