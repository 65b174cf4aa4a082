# Every queue that the catalog enables, with all that they post to, and backups that outlive the database.
project_id = "my-project"
region     = "europe-west3"
firestore  = { location = "eur3" }
bootstrap  = true # for the first apply alone
backups    = { daily_days = 7, weekly_weeks = 14 }

target_urls = {
  SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com"
  PLATFORM_URL             = "https://platform.example.com"
  GATEWAY_URL              = "https://gateway.example.com"
  NOTIFICATION_SERVICE_URL = "https://notifications.example.com"
  SEARCH_URL               = "https://search.example.com"
  ANALYTICS_URL            = "https://analytics.example.com"
}

notification_channels = ["projects/my-project/notificationChannels/1234567890"]
