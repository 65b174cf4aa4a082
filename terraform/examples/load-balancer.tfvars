# PayNow's webhooks behind a domain of your own, with Cloud Armor. While the senders still use the old address: direct = true.
project_id = "my-project"
region     = "europe-west3"
firestore  = { location = "eur3" }
bootstrap  = true # for the first apply alone
front      = { domains = ["hooks.example.com"] }

queues      = ["paynow-events", "pay-subscription-update"]
target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }

notification_channels = ["projects/my-project/notificationChannels/1234567890"]
