# A shop that takes PayNow's webhooks and nothing else: the webhook service and one worker.
project_id = "my-project"
region     = "europe-west3"
firestore  = { location = "eur3" }
bootstrap  = true # for the first apply alone: then images = { webhook = "...@sha256:...", worker = "...@sha256:..." }

# Which of the catalog's queues run. Without this all of them do, and then a plan names the addresses that are missing below.
queues = ["paynow-events", "pay-subscription-update"]

# Where the targets of catalog/targets.yaml are that these queues post to.
target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }

# Who may open the pages and use the API, the channels of the alerts, and the address of the runbooks.
ops                   = { people = ["group:operators@example.com"] }
notification_channels = ["projects/my-project/notificationChannels/1234567890"]
runbooks              = "https://git.example.com/billhook/docs/runbooks"

# What a usual day has at least: a silence is told of by that.
alerts = { webhooks_a_day = { paynow = 10 } }
