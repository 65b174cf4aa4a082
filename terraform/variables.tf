variable "project_id" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the services and the scheduler run."
  type        = string
}

variable "catalog_dir" {
  description = "The folder of another catalog; null is the repository's own. The images must hold the same one."
  type        = string
  default     = null
}

variable "installation" {
  description = <<-EOT
    The installation's name, where the project has several; empty is for the only one, or for the first. It
    stands before the ids of topics and subscriptions, and is the default of name and of the database's id. It
    cannot be changed later: topics and subscriptions of another name are other ones.
  EOT
  type        = string
  default     = ""

  validation {
    condition     = var.installation == "" || (can(regex("^[a-z][a-z0-9-]{1,10}[a-z0-9]$", var.installation)) && !startswith(var.installation, "goog"))
    error_message = "installation must be empty, or 3 to 12 of a-z, 0-9 and -, begin with a letter, not with goog, and not end with -."
  }
}

variable "name" {
  description = "The prefix of the names of services, accounts, secrets, metrics and alerts; null is installation, or billhook where that is empty."
  type        = string
  default     = null

  validation {
    condition     = var.name == null || can(regex("^[a-z][a-z0-9-]{2,11}$", var.name))
    error_message = "name must be 3 to 12 of a-z, 0-9 and -, and begin with a letter."
  }
}

variable "images" {
  description = "The images of the services, by digest. A rollback is the digests from before."
  type        = object({ webhook = string, worker = string })
  default     = null

  validation {
    condition     = var.images == null || try(can(regex("@sha256:[0-9a-f]{64}$", var.images.webhook)) && can(regex("@sha256:[0-9a-f]{64}$", var.images.worker)), false)
    error_message = "Both images must be named by their digest: <registry>/<image>@sha256:<64 hex digits>."
  }
  # Forgotten, they would take the services, the scheduler's jobs and the alerts with them.
  validation {
    condition     = var.images != null || var.bootstrap
    error_message = "images is missing: name the images that run, by digest. The first apply alone comes without: it sets bootstrap = true."
  }
  validation {
    condition     = var.images == null || !var.bootstrap
    error_message = "bootstrap is for the first apply, which has no images: take it out where images are named."
  }
}

variable "bootstrap" {
  description = <<-EOT
    For the first apply alone, in the place of images: makes everything but the services, the
    scheduler's jobs and the alerts, since images and versions of the secrets do not exist yet.
  EOT
  type        = bool
  default     = false
}

variable "canary" {
  description = <<-EOT
    Another image, by digest, for some percent of a service's requests, by the service's key in the
    output services. The revision that served before keeps the rest. At 0 percent it has all again, at once and without
    a new revision. To promote a canary, put its digest into images and take it out here.
  EOT
  type        = map(object({ image = string, percent = number }))
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.canary), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"]))) == 0
    error_message = "canary names no service: ${join(", ", setsubtract(keys(var.canary), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"])))}. There are webhook, ops and ${join(", ", [for pool in keys(module.catalog.pools) : "worker-${pool}"])}."
  }
  validation {
    condition     = alltrue([for c in values(var.canary) : can(regex("@sha256:[0-9a-f]{64}$", c.image))])
    error_message = "A canary's image must be named by its digest: <registry>/<image>@sha256:<64 hex digits>."
  }
  validation {
    condition     = alltrue([for c in values(var.canary) : 0 <= c.percent && c.percent <= 99 && c.percent == floor(c.percent)])
    error_message = "A canary takes 0 to 99 whole percent. For all of them put its image into images."
  }
  validation {
    condition     = length(var.canary) == 0 || !var.bootstrap
    error_message = "A canary stands beside a service that runs; with bootstrap there is none."
  }
}

variable "redeploy" {
  description = <<-EOT
    A label by the service's key in the output services. Another value makes another revision of the same
    configuration: where an update failed for a reason outside of Terraform, and the plan shows no changes.
  EOT
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.redeploy), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"]))) == 0
    error_message = "redeploy names no service: ${join(", ", setsubtract(keys(var.redeploy), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"])))}. There are webhook, ops and ${join(", ", [for pool in keys(module.catalog.pools) : "worker-${pool}"])}."
  }
  validation {
    condition     = alltrue([for value in values(var.redeploy) : can(regex("^[a-z0-9_-]{1,63}$", value))])
    error_message = "A value of redeploy must be 1 to 63 of a-z, 0-9, _ and -, such as a date."
  }
}

variable "secret_versions" {
  description = <<-EOT
    The number of the version that services read of each secret, by environment variable. A
    secret that is not named here is at version 1. Versions are added outside of Terraform, so
    no value is ever in its state.
  EOT
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for n in values(var.secret_versions) : n >= 1 && floor(n) == n])
    error_message = "A version is a whole number, at least 1."
  }
}

variable "target_urls" {
  description = "Where the targets are that enabled queues post to, by the environment variable of targets.yaml: https://host."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for variable in flatten([for p in values(module.catalog.pools) : p.url_variables]) : lookup(var.target_urls, variable, "") != ""
    ])
    error_message = "An enabled queue posts to a target that target_urls does not name. Without it its worker does not start: ${join(", ", setsubtract(flatten([for p in values(module.catalog.pools) : p.url_variables]), keys(var.target_urls)))}."
  }
  validation {
    condition     = alltrue([for url in values(var.target_urls) : can(regex("^https://[^/?#]+(/[^?#]*)?$", url))])
    error_message = "target_urls must be https://host, without query or fragment."
  }
  validation {
    condition     = length(setsubtract(keys(var.target_urls), flatten([for p in values(module.catalog.pools) : p.url_variables]))) == 0
    error_message = "target_urls names a variable that no worker reads."
  }
}

variable "queues" {
  description = <<-EOT
    Which of the catalog's enabled queues run, by id or alias; without any, all of them. A queue
    whose handlers emit to another needs that one too. PayNow alone needs the queue of its events
    and the one that they emit to: one worker beside the webhook service, and one address.
  EOT
  type        = list(string)
  default     = []
}

variable "kept_queues" {
  description = <<-EOT
    Queues, by id, that no longer run and keep their topic and subscriptions, without an endpoint: what waits
    there waits on, for as long as the catalog has messages kept. Whoever switches a queue off names it here
    first, or in discard_backlog.
  EOT
  type        = list(string)
  default     = []
}

variable "discard_backlog" {
  description = <<-EOT
    Queues, by id, whose topic and subscriptions may be deleted, with every message in them. It takes two
    applies: the first, while the queue runs or is kept, takes away the protection; the second is that in
    which the queue neither runs nor is kept. A change that needs another subscription, such as that of an
    ordering key, is of the second kind.
  EOT
  type        = list(string)
  default     = []
}

variable "message_storage" {
  description = <<-EOT
    Where Pub/Sub keeps messages, and by which key: the regions in which a topic's messages may be stored, without any
    those that the organization allows; whether messages may pass through these regions alone, so that who
    publishes or reads elsewhere is refused; and the key of Cloud KMS that encrypts them, which Pub/Sub's own
    account is granted here. Null is Google's key. A policy stays on its topics when regions are taken out
    here: name those that are to be allowed instead.
  EOT
  type = object({
    regions            = optional(list(string), [])
    enforce_in_transit = optional(bool, false)
    kms_key            = optional(string)
  })
  default = {}

  validation {
    condition     = alltrue([for region in var.message_storage.regions : can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", region))]) && length(distinct(var.message_storage.regions)) == length(var.message_storage.regions)
    error_message = "message_storage.regions lists regions, such as europe-west3, each once."
  }
  validation {
    condition     = !var.message_storage.enforce_in_transit || contains(var.message_storage.regions, var.region)
    error_message = "With enforce_in_transit the services' region has to be one of message_storage.regions: Pub/Sub would refuse what they publish."
  }
  validation {
    condition     = var.message_storage.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.message_storage.kms_key))
    error_message = "message_storage.kms_key is written as projects/<project>/locations/<location>/keyRings/<ring>/cryptoKeys/<key>."
  }
}

variable "tasks_pool" {
  description = <<-EOT
    The pool whose worker runs the tasks, for all pools; null is the catalog's tasks_pool. Where that does
    not run, and several others do, one of them has to be named here.
  EOT
  type        = string
  default     = null
}

variable "paused_queues" {
  description = <<-EOT
    The queues, by id, that billhook queues pause has paused. A plan that would undo a pause is refused
    until this names the queue, and so is one whose queue is not paused.
  EOT
  type        = list(string)
  default     = []

  validation {
    condition     = length(setsubtract(var.paused_queues, [for id, q in module.catalog.queues : id if q.enabled])) == 0
    error_message = "paused_queues names no queue that runs: ${join(", ", setsubtract(var.paused_queues, [for id, q in module.catalog.queues : id if q.enabled]))}."
  }
}

variable "firestore" {
  description = <<-EOT
    The database: its id, which is that of the installation, or billhook where that is empty; its location;
    and a key of Cloud KMS that encrypts it, where Google's own is not to. Location and key can never be
    changed. The key lies in the database's location: for eur3 that is europe, for nam5 us.
  EOT
  type        = object({ database = optional(string), location = string, kms_key = optional(string) })

  validation {
    condition     = can(regex("^(\\(default\\)|[a-z][a-z0-9-]{2,61}[a-z0-9])$", coalesce(var.firestore.database, var.installation, "billhook")))
    error_message = "A database's id is (default), or 4 to 63 of a-z, 0-9 and -, begins with a letter and does not end with -: name one in firestore.database."
  }
  validation {
    condition     = var.firestore.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.firestore.kms_key))
    error_message = "firestore.kms_key is written as projects/<project>/locations/<location>/keyRings/<ring>/cryptoKeys/<key>."
  }
}

variable "webhook_scaling" {
  description = "Instances of the webhook service. At least one: a payment provider's patience is shorter than a bad cold start."
  type        = object({ min = number, max = number })
  default     = { min = 1, max = 10 }

  validation {
    condition     = 0 <= var.webhook_scaling.min && var.webhook_scaling.min <= var.webhook_scaling.max && 1 <= var.webhook_scaling.max && var.webhook_scaling.max <= 1000
    error_message = "webhook_scaling must have 0 <= min <= max, and max 1 to 1000."
  }
}

variable "scale_to_zero" {
  description = "Whether no service keeps an instance without requests: an idle installation then costs no instances, and the first request after a pause waits for one to start."
  type        = bool
  default     = false
}

variable "catalog_min_instances" {
  description = "Whether a worker keeps the most of its queues' min_instances in the catalog. Otherwise it keeps one where a queue of priority high has any, and none elsewhere."
  type        = bool
  default     = false

  validation {
    condition     = !(var.catalog_min_instances && var.scale_to_zero)
    error_message = "catalog_min_instances keeps instances, and scale_to_zero keeps none: choose one."
  }
}

variable "webhook_resources" {
  description = "CPUs and memory of an instance of the webhook service. Not less memory than by default: a quarter of that is for bodies in flight."
  type        = object({ cpu = string, memory = string, cpu_idle = bool })
  default     = { cpu = "1", memory = "512Mi", cpu_idle = true }
}

variable "worker_resources" {
  description = "CPUs and memory of an instance of a worker. Not less memory than by default: a quarter of that is for bodies in flight."
  type        = object({ cpu = string, memory = string, cpu_idle = bool })
  default     = { cpu = "1", memory = "512Mi", cpu_idle = true }
}

variable "notification_channels" {
  description = "Where alerts go: ids of notification channels."
  type        = list(string)
  default     = []
}

variable "runbooks" {
  description = "The address of docs/runbooks for people on call; each alert links its page there."
  type        = string
  default     = "docs/runbooks"
}

variable "alerts" {
  description = <<-EOT
    The thresholds that are no queue's, and the alerts that are not made (off); modules/alerts has the
    defaults and the limits. Shares are 0 to 1. What ends with _at_least is how many there must be before a
    share says anything. Ages are seconds. webhooks_a_day is what a usual day has at least, by source.
  EOT
  type = object({
    off = optional(set(string))

    ingest_error_share     = optional(number)
    ingest_errors_at_least = optional(number)
    objective              = optional(number)
    burnt_at_least         = optional(number)

    push_failure_share     = optional(number)
    push_failures_at_least = optional(number)
    ack_deadlines_at_least = optional(number)

    webhooks_a_day            = optional(map(number))
    webhooks_refused_share    = optional(number)
    webhooks_refused_at_least = optional(number)

    ttl_late_by     = optional(number)
    outbox_oldest   = optional(number)
    unsealed_oldest = optional(number)
  })
  default = {}
}

variable "deletion_protection" {
  description = "Whether the databases, the secrets, and the topics and subscriptions that hold queues' messages, refuse to be deleted. Services hold nothing, and never refuse."
  type        = bool
  default     = true
}
