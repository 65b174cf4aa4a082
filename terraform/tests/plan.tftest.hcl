# What a plan says, without a project: the provider's schemas, and made-up answers. It
# needs hashicorp/google, and nothing of Google Cloud.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  # Known to a plan, for the check that reads it.
  mock_resource "google_cloud_run_v2_service" {
    override_during = plan
    defaults        = { terminal_condition = [] }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/example/serviceAccounts/account@example.iam.gserviceaccount.com"
      email  = "account@example.iam.gserviceaccount.com"
      member = "serviceAccount:account@example.iam.gserviceaccount.com"
    }
  }
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/example/topics/made-up" }
  }
}

variables {
  project_id = "example"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  alerts = { channels = ["projects/example/notificationChannels/1"], runbooks = "https://example.com/runbooks" }
  target_urls = {
    SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example"
    PLATFORM_URL             = "https://platform.example"
    GATEWAY_URL              = "https://gateway.example"
    NOTIFICATION_SERVICE_URL = "https://notifications.example"
    SEARCH_URL               = "https://search.example"
    ANALYTICS_URL            = "https://analytics.example"
  }
}

run "everything_but_the_services_without_images" {
  command = plan

  variables {
    images    = null
    bootstrap = true
    webhook   = { scaling = { min = 0, max = 10 } }
    worker    = { keeps = "none" }
  }

  assert {
    condition     = length(module.webhook) == 0 && length(module.worker) == 0 && length(google_cloud_scheduler_job.tasks) == 0
    error_message = "Without images there are no services, and nothing that calls them."
  }
  assert {
    condition     = length(google_secret_manager_secret.secret) == length(output.secrets) && length(output.secrets) > 1
    error_message = "The secrets are there to be filled."
  }
  assert {
    condition     = length(google_monitoring_alert_policy.alert) == 0 && length(google_logging_metric.logged) > 0
    error_message = "Without services there is nothing to tell of; the metrics are known when they come."
  }
  assert {
    condition     = length(local.scaling) == length(output.services) && alltrue([for s in values(local.scaling) : s.min == 0 && s.max > 0])
    error_message = "No instance is kept."
  }
  assert {
    condition     = google_firestore_database.this.delete_protection_state == "DELETE_PROTECTION_ENABLED"
    error_message = "The database does not go by mistake."
  }
  assert {
    condition = alltrue([for key, f in google_firestore_field.unindexed : (f.field == "expire_at") == (length(f.ttl_config) == 1) && length(f.index_config) == 1]) && (
      length([for f in google_firestore_field.unindexed : f if f.field == "expire_at"]) == length(local.ttl_collections) + 1
    )
    error_message = "Expired documents are removed, by a field without an index."
  }
  assert {
    condition     = google_firestore_field.indexed["entries.postings"].index_config[0].indexes != null
    error_message = "Where a journal runs, its entries are found by a control account."
  }
  assert {
    condition     = [for field in google_firestore_index.composite["deadLetters"].fields : "${field.field_path} ${field.order}"] == ["queue ASCENDING", "state ASCENDING", "kept_at ASCENDING"]
    error_message = "The oldest open dead letter of a queue is found by an index."
  }
  assert {
    condition = toset(keys(google_project_iam_member.uses_database)) == toset(keys(google_service_account.service)) && alltrue([
      for name, grant in google_project_iam_member.uses_database : grant.condition[0].expression == join(" || ", [
        for database in concat(["billhook-ingest"], name == "webhook" ? [] : ["billhook"]) : "resource.name == \"projects/${var.project_id}/databases/${database}\""
      ])
    ])
    error_message = "Nobody may use another database, and the webhook service has a grant on its own alone, in which the workers make the copies."
  }
}

run "a_job_puts_a_message_on_a_queue" {
  command = plan

  variables {
    scheduled_messages = {
      invoices = { to = "topics/notifications", schedule = "0 6 1 * *", body = "{}" }
    }
  }

  assert {
    condition     = google_cloud_scheduler_job.message["invoices"].http_target[0].uri == "${local.webhook_url}/topics/notifications/messages" && google_cloud_scheduler_job.message["invoices"].http_target[0].uri == google_cloud_scheduler_job.message["invoices"].http_target[0].oidc_token[0].audience
    error_message = "The token is for the path that the message is put on, and no other."
  }
  assert {
    condition     = module.webhook[0].env.PRODUCER_AUDIENCE == local.webhook_url && contains(keys(module.webhook[0].env), "PRODUCER_ACCOUNTS")
    error_message = "The webhook service knows the account."
  }
}

run "a_job_sends_where_the_catalog_allows_it" {
  command = plan

  variables {
    scheduled_messages = {
      refunds = { to = "topics/orders", schedule = "0 6 1 * *", body = "{}" }
    }
  }

  expect_failures = [google_service_account.scheduler]
}

run "without_a_job_there_is_no_account" {
  command = plan

  assert {
    condition     = length(google_service_account.scheduler) == 0 && !contains(keys(module.webhook[0].env), "PRODUCER_ACCOUNTS")
    error_message = "Nobody sends by a token unless somebody wants it."
  }
}

run "the_services" {
  command = plan

  assert {
    condition     = toset(keys(module.worker)) == toset(distinct([for q in values(module.catalog.queues) : q.pool if q.enabled]))
    error_message = "There is a worker for each pool with an enabled queue, and no other."
  }
  assert {
    condition     = google_cloud_scheduler_job.tasks[0].http_target[0].uri == "${local.worker_urls[output.tasks_pool]}/tasks" && google_cloud_scheduler_job.tasks[0].schedule == "* * * * *"
    error_message = "The tasks are called."
  }
  assert {
    condition     = google_cloud_scheduler_job.tasks[0].http_target[0].oidc_token[0].audience == local.audience
    error_message = "The scheduler's token names the verifier's audience."
  }
  assert {
    condition = alltrue([for w in values(module.worker) :
      w.env.ALARM_QUEUE == "projects/example/locations/europe-west3/queues/billhook-alarm" && w.env.ALARM_URL == local.worker_urls[output.tasks_pool]
    ])
    error_message = "Every worker asks for its calls on the one queue, and they go to the worker that runs the tasks."
  }
  assert {
    condition     = google_cloud_tasks_queue.alarm.retry_config[0].max_attempts <= 5 && google_cloud_tasks_queue.alarm.rate_limits[0].max_concurrent_dispatches <= 10
    error_message = "The alarm is tried a few times, since the scheduler is behind it, and in the room that a worker has beside its queues."
  }
  assert {
    condition     = alltrue([for w in values(module.worker) : w.service.custom_audiences == tolist([local.audience]) && w.env.PUSH_AUDIENCE == local.audience && w.env.PUSH_AUTH == "iam"])
    error_message = "Service and verifier take the audience that pushes name."
  }
  assert {
    condition     = output.services == merge({ webhook = module.webhook[0].service.name, ops = module.ops[0].service.name }, { for pool, w in module.worker : "worker-${pool}" => w.service.name })
    error_message = "The services know the names."
  }
  assert {
    condition     = alltrue([for url in values(local.worker_urls) : can(regex("^https://[a-z0-9-]{1,63}[.]europe-west3[.]run[.]app$", url))])
    error_message = "A worker's address is one host, without a path."
  }
  assert {
    condition = alltrue([
      for pool, p in module.catalog.pools : local.scaling[output.services["worker-${pool}"]] == {
        min = anytrue([for id in p.queues : module.catalog.queues[id].priority == "high" && module.catalog.queues[id].min_instances > 0]) ? 1 : 0
        max = p.max_instances
      }
    ]) && local.scaling[output.services.webhook] == { min = 1, max = 10 }
    error_message = "One instance is kept at the webhook service, and one where somebody waits for a queue."
  }
  assert {
    condition     = length([for s in values(local.scaling) : s if s.min == 0]) > length([for s in values(local.scaling) : s if s.min == 1]) && length([for s in values(local.scaling) : s if s.min == 1]) > 1
    error_message = "Most workers of the shipped catalog keep none."
  }
  assert {
    condition     = module.webhook[0].service.ingress == "INGRESS_TRAFFIC_ALL" && length(google_monitoring_slo.webhooks) == 0 && !contains(keys(google_logging_metric.logged), "secret-access")
    error_message = "What nobody asked for is not made."
  }
  assert {
    condition     = alltrue([for s in concat(module.webhook, values(module.worker)) : s.env.INGEST_DATABASE == google_firestore_database.ingest.name])
    error_message = "The webhook service and the workers know the database of the copies."
  }
  assert {
    condition     = toset([for name in keys(google_monitoring_alert_policy.alert) : split("/", name)[0]]) == toset(["ingest-errors", "webhooks-refused", "webhooks-stopped", "push-failures", "dead-letters", "oldest-unacked", "outbox-stuck", "tasks-stopped"])
    error_message = "Eight alerts wake somebody unless more are asked for."
  }
}

# Two services, one address, no secret that nobody reads, and the alerts of both queues.
run "paynow_alone" {
  command = plan

  variables {
    queues = distinct(concat(
      values(yamldecode(file("../catalog/sources.yaml")).sources.paynow.events),
      flatten([
        for q in yamldecode(file("../catalog/queues.yaml")).queues : [for h in values(q.handlers) : try(h.emits, [])]
        if contains(values(yamldecode(file("../catalog/sources.yaml")).sources.paynow.events), q.id)
      ]),
    ))
    target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example" }
    alerts      = { on = ["all"], runbooks = "https://example.com/runbooks" }
  }

  # No alert reaches anybody, which is a warning.
  expect_failures = [check.notification_channels]

  assert {
    condition     = !contains(keys(module.alerts.policies), "webhooks-stopped/generic") && contains(keys(google_logging_metric.logged), "deliveries")
    error_message = "No alert is on producers that are not known to send; all alerts are also all metrics."
  }
  assert {
    condition     = join(" ", keys(module.worker)) == "payments"
    error_message = "One worker runs both queues."
  }
  assert {
    condition     = length(module.queue) == 2 && length(google_pubsub_topic.shared) == 0 && output.tasks_pool == "payments"
    error_message = "There are the topics of what runs, and no others."
  }
  assert {
    condition     = length([for key in keys(google_firestore_field.unindexed) : key if startswith(key, "orders.") || startswith(key, "usage")]) == 0 && contains(keys(google_firestore_field.unindexed), "webhookEvents.*") && length(setintersection(values(google_firestore_index.composite)[*].collection, ["refunds", "endpoints"])) == 0 && !contains(keys(google_firestore_field.indexed), "entries.postings")
    error_message = "What no running queue's app writes has no index, and nothing to be taken out of indexes."
  }
  assert {
    condition     = join(" ", sort(keys(google_secret_manager_secret.secret))) == "DELIVERY_SIGNING_SECRET WEBHOOK_SECRET_PAYNOW WEBHOOK_SIGNING_SECRET"
    error_message = "The secrets are those of the sources and targets that are left."
  }
  assert {
    condition     = toset(keys(google_monitoring_alert_policy.alert)) == toset(keys(module.alerts.policies))
    error_message = "Each policy is made."
  }
  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.alert) :
      can(regex("^https://example.com/runbooks/[a-z-]+\\.md(#[a-z-]+)?$", policy.documentation[0].links[0].url))
    ])
    error_message = "Each alert links its runbook."
  }
  assert {
    condition = alltrue(flatten([
      for name, policy in google_monitoring_alert_policy.alert : [
        for i, c in policy.conditions :
        c.condition_threshold[0].filter == module.alerts.policies[name].conditions[i].filter &&
        c.condition_threshold[0].threshold_value == module.alerts.policies[name].conditions[i].threshold &&
        c.condition_threshold[0].comparison == module.alerts.policies[name].conditions[i].comparison &&
        c.condition_threshold[0].duration == module.alerts.policies[name].conditions[i].duration &&
        [for a in c.condition_threshold[0].aggregations : join(" ", concat([a.alignment_period, a.per_series_aligner, a.cross_series_reducer], tolist(a.group_by_fields)))] ==
        [for align in module.alerts.policies[name].conditions[i].align[*] : join(" ", concat([module.alerts.policies[name].conditions[i].period, align, module.alerts.policies[name].conditions[i].reduce], module.alerts.policies[name].conditions[i].by))]
      ]
    ]))
    error_message = "Each condition is the module's."
  }
  assert {
    condition     = google_monitoring_alert_policy.alert["tasks-stopped"].conditions[0].condition_threshold[0].evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE" && google_monitoring_alert_policy.alert["push-failures"].conditions[0].condition_threshold[0].denominator_filter == module.alerts.policies["push-failures"].conditions[0].share_of
    error_message = "No run, and no news of any, are the same; and a share has what it is a share of."
  }
  assert {
    condition     = alltrue([for task in local.tasks : strcontains(google_monitoring_alert_policy.alert["tasks-stopped"].conditions[0].condition_threshold[0].filter, "\"${task}\"")])
    error_message = "Each task that is called is missed."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.alert["slo-burn"].conditions[0].condition_threshold[0].filter, "projects/123456789012/services/${google_monitoring_slo.webhooks["slo-burn"].service}/serviceLevelObjectives/${google_monitoring_slo.webhooks["slo-burn"].slo_id}\"")
    error_message = "The burn rate is that of the objective."
  }
  assert {
    condition = alltrue([
      for name in ["open-dead-letters", "oldest-dead-letter-seconds"] :
      google_logging_metric.logged[name].label_extractors == tomap({ queue = "EXTRACT(jsonPayload.queue)" }) &&
      google_logging_metric.logged[name].metric_descriptor[0].value_type == "DISTRIBUTION" &&
      strcontains(google_logging_metric.logged[name].filter, "jsonPayload.message=\"open dead letters\"")
    ])
    error_message = "The numbers are those of the task's lines, by queue."
  }
  assert {
    condition     = length([for id, q in module.catalog.queues : id if q.enabled]) + 1 == length(distinct([for tile in jsondecode(google_monitoring_dashboard.this.dashboard_json).mosaicLayout.tiles : tile.yPos]))
    error_message = "The dashboard has a row for each enabled queue, and one for the services."
  }
}

run "a_version_of_a_secret_that_nobody_reads_is_refused" {
  command = plan

  variables {
    secret_versions = { NOBODYS_SECRET = 1 }
  }

  expect_failures = [google_secret_manager_secret.secret]
}
