locals {
  pools      = module.catalog.pools
  tasks_pool = module.catalog.tasks_pool

  # What stands before the names of services, accounts, secrets, metrics and alerts.
  name        = coalesce(var.installation, "billhook")
  database_id = coalesce(var.firestore.database, local.name)

  # The services' QUEUES, where some queues run, and their INSTALLATION, where the project has several.
  running = merge(
    length(var.queues) == 0 ? {} : { QUEUES = join(",", var.queues) },
    var.installation == "" ? {} : { INSTALLATION = var.installation },
  )

  number = data.google_project.this.number
  labels = merge(var.labels, { app = local.name })

  # What all services have in common.
  installed = {
    project_id     = var.project_id
    region         = var.region
    labels         = local.labels
    encryption_key = var.keys.services
  }

  # What a call of the tasks does, each by itself. Firestore's TTL does the cleanup.
  tasks = [
    "relay-outbox", "release-delayed", "run-operations", "count-dead-letters", "count-backlogs", "sweep-leases",
    "seal-journal", "verify-books",
  ]

  # One static audience for subscriptions, services and verifier. It is not an address, so
  # no resource waits for one.
  audience = "https://${local.name}.push.${var.project_id}.internal"

  # Cloud Run's addresses by project number are known before the services are.
  worker_names = { for pool in keys(local.pools) : pool => "${local.name}-worker-${pool}" }
  worker_urls  = { for pool, name in local.worker_names : pool => "https://${name}-${local.number}.${var.region}.run.app" }
  webhook_name = "${local.name}-webhook"

  pubsub_agent = "serviceAccount:service-${local.number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  # An account's id has at most 30 characters.
  account_ids = {
    for id in concat(values(local.service_names), [for pool in keys(local.pools) : "${local.name}-push-${pool}"]) :
    id => length(id) <= 30 ? id : "${substr(id, 0, 23)}-${substr(sha1(id), 0, 6)}"
  }

  # Behind a load balancer the webhook service's own address is closed: what is refused there would come in here.
  webhook_url = var.webhook.domain == null ? "https://${local.webhook_name}-${local.number}.${var.region}.run.app" : "https://${var.webhook.domain}"

  deployed = var.images != null

  # A buyer waits for a queue which the catalog gives priority, and instances of its own.
  kept_instances = { for pool, p in local.pools : pool => {
    awaited = anytrue([for id in p.queues : local.queues[id].priority == "high" && local.queues[id].min_instances > 0]) ? 1 : 0
    catalog = p.min_instances
    none    = 0
  }[var.worker.keeps] }

  scaling = merge(
    { (local.webhook_name) = var.webhook.scaling, (local.ops_name) = { min = 0, max = 1 } },
    { for pool, p in local.pools : local.worker_names[pool] => { min = local.kept_instances[pool], max = p.max_instances } },
  )

  url_variables = distinct(flatten([for p in values(local.pools) : p.url_variables]))
}

module "catalog" {
  source       = "./modules/catalog"
  directory    = var.catalog_dir == null ? "${path.module}/../catalog" : var.catalog_dir
  queues       = var.queues
  kept         = var.kept_queues
  tasks_pool   = var.tasks_pool
  installation = var.installation
}

data "google_project" "this" {
  project_id = var.project_id
}

# Of several regions where there are such registries, so that the images are left where one region is lost.
resource "google_artifact_registry_repository" "images" {
  project       = var.project_id
  location      = can(regex("^(asia|europe|us)-", var.region)) ? split("-", var.region)[0] : var.region
  repository_id = local.name
  format        = "DOCKER"
  labels        = local.labels
}

module "webhook" {
  source    = "./modules/service"
  count     = local.deployed ? 1 : 0
  installed = local.installed
  revision  = local.revisions["webhook"]

  service = {
    name            = local.webhook_name
    account         = google_service_account.service["webhook"].email
    ingress         = "INGRESS_TRAFFIC_${var.webhook.domain == null ? "ALL" : "INTERNAL_LOAD_BALANCER"}"
    public          = true
    scaling         = local.scaling[local.webhook_name]
    resources       = var.webhook.resources
    concurrency     = var.webhook.concurrency
    timeout_seconds = var.webhook.timeout_seconds
    vpc             = try(var.vpc.webhook, false) ? var.vpc : null
    secrets = {
      for variable in local.read_by["webhook"] : variable => local.secret_references[variable]
    }
    env = merge(
      {
        GOOGLE_CLOUD_PROJECT      = var.project_id
        INGEST_DATABASE           = google_firestore_database.ingest.name
        WEBHOOK_TOLERANCE_SECONDS = var.webhook.tolerance_seconds
      },
      local.running,
      {
        for account in values(google_service_account.scheduler) :
        "PRODUCER_ACCOUNTS" => "scheduler=${account.email}"
      },
      { for name in keys(local.schedules) : "PRODUCER_AUDIENCE" => local.webhook_url },
    )
  }

  # Not module.queue: of this service what comes is made before what goes, and so it would be of all that it
  # depends on. A subscription's name is taken while the old one is there. Until a new queue's topic and
  # grant are there, which takes seconds, its senders are answered 503.
  depends_on = [terraform_data.grants_work]
}

module "worker" {
  source    = "./modules/service"
  for_each  = local.deployed ? local.pools : {}
  installed = local.installed
  revision  = local.revisions["worker-${each.key}"]

  service = {
    name      = local.worker_names[each.key]
    account   = google_service_account.service["worker-${each.key}"].email
    ingress   = "INGRESS_TRAFFIC_INTERNAL_ONLY"
    audiences = [local.audience]
    invokers  = { push = google_service_account.push[each.key].member }
    scaling   = local.scaling[local.worker_names[each.key]]
    resources = var.worker.resources
    vpc       = var.vpc
    # Room for a burst that waits for slots of its queue, and for tasks.
    concurrency = min(1000, 4 * each.value.concurrency + 10)
    # Above the ack deadline and what is read and written around a handler, 85 s at the most; and above a
    # task's minute.
    timeout_seconds = each.value.timeout + 90
    secrets = {
      for variable in local.read_by["worker-${each.key}"] : variable => local.secret_references[variable]
    }
    env = merge(
      {
        GOOGLE_CLOUD_PROJECT = var.project_id
        FIRESTORE_DATABASE   = google_firestore_database.this.name
        INGEST_DATABASE      = google_firestore_database.ingest.name
        SERVES               = "pushes"
        POOL                 = each.key
        TASKS_POOL           = local.tasks_pool
        PUSH_AUTH            = "iam" # Cloud Run checks the token, and strips its signature
        PUSH_AUDIENCE        = local.audience
        PUSH_SERVICE_ACCOUNT = google_service_account.push[each.key].email
        # Alarms call the worker that runs the tasks.
        ALARM_QUEUE           = "projects/${var.project_id}/locations/${google_cloud_tasks_queue.alarm.location}/queues/${google_cloud_tasks_queue.alarm.name}"
        ALARM_URL             = local.worker_urls[local.tasks_pool]
        ALARM_SERVICE_ACCOUNT = google_service_account.push[local.tasks_pool].email
      },
      local.running,
      { for variable in each.value.url_variables : variable => lookup(var.target_urls, variable, "") },
    )
  }

  depends_on = [terraform_data.grants_work, google_firestore_index.composite]
}

# All tasks at once, with the same token as a push.
resource "google_cloud_scheduler_job" "tasks" {
  count            = local.deployed ? 1 : 0
  project          = var.project_id
  region           = var.region
  name             = "${local.name}-tasks"
  description      = "POST /tasks on the worker of pool ${local.tasks_pool}"
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "90s"
  paused           = false # by hand or by mistake: the next plan says it

  # The next run does the work of a failed one.
  retry_config {
    retry_count = 0
  }

  http_target {
    http_method = "POST"
    uri         = "${local.worker_urls[local.tasks_pool]}/tasks"
    oidc_token {
      service_account_email = google_service_account.push[local.tasks_pool].email
      audience              = local.audience
    }
  }

  depends_on = [module.worker]
}

# When a kept message is due, a task without a name calls release-delayed, with the same
# token. An instance of a worker asks for four calls a second at most.
resource "google_cloud_tasks_queue" "alarm" {
  project  = var.project_id
  location = var.region
  name     = "${local.name}-alarm"

  # A run publishes all due messages, so more runs at once are not faster. Their number is
  # below the requests that a worker has room for beside its queues.
  rate_limits {
    max_dispatches_per_second = 50
    max_concurrent_dispatches = 5
  }

  # The scheduler's next run does the work of a failed call.
  retry_config {
    max_attempts  = 3
    min_backoff   = "1s"
    max_backoff   = "10s"
    max_doublings = 3
  }
}
