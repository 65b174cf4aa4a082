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
  description = "The name of an installation beside another one in the project; empty is billhook. It stands before every name, and can never be changed."
  type        = string
  default     = ""

  validation {
    condition     = var.installation == "" || (can(regex("^[a-z][a-z0-9-]{1,10}[a-z0-9]$", var.installation)) && !startswith(var.installation, "goog"))
    error_message = "installation must be empty, or 3 to 12 of a-z, 0-9 and -, begin with a letter, not with goog, and not end with -."
  }
}

variable "images" {
  description = "The images of the services, by digest. A rollback is the digests from before."
  type        = object({ webhook = string, worker = string })
  default     = null

  validation {
    condition     = var.images == null || try(alltrue([for image in values(var.images) : can(regex("@sha256:[0-9a-f]{64}$", image))]), false)
    error_message = "Both images must be named by their digest: <registry>/<image>@sha256:<64 hex digits>."
  }
  # Forgotten, they would take the services, the scheduler's jobs and the alerts with them.
  validation {
    condition     = (var.images == null) == var.bootstrap
    error_message = "Name in images what runs, by digest. The first apply alone comes without, and sets bootstrap = true in their place."
  }
}

variable "bootstrap" {
  description = "For the first apply alone, in the place of images: makes all but the services, the scheduler's jobs and the alerts, since secrets have no versions yet."
  type        = bool
  default     = false
}

variable "services" {
  description = <<-EOT
    What is said of single services, by their keys in the output services: a canary, another image by digest
    for some percent of the requests, while the revision that served keeps the rest; redeploy, any new value
    of which makes a revision of the same configuration; and more environment variables, none of them secret.
  EOT
  type = map(object({
    canary   = optional(object({ image = string, percent = number }))
    redeploy = optional(string, "")
    env      = optional(map(string), {})
  }))
  default = {}

  validation {
    condition     = length(setsubtract(keys(var.services), keys(local.service_names))) == 0
    error_message = "services names ${join(", ", setsubtract(keys(var.services), keys(local.service_names)))}, which is none. There are ${join(", ", keys(local.service_names))}."
  }
  validation {
    condition = alltrue([
      for s in values(var.services) : s.canary == null || try(can(regex("@sha256:[0-9a-f]{64}$", s.canary.image)) && contains(range(100), s.canary.percent), false)
    ])
    error_message = "A canary is an image by digest, <registry>/<image>@sha256:<64 hex digits>, and 0 to 99 whole percent. For all of them put its image into images."
  }
  validation {
    condition     = alltrue([for s in values(var.services) : s.canary == null]) || !var.bootstrap
    error_message = "A canary stands beside a service that runs; with bootstrap there is none."
  }
}

variable "secret_versions" {
  description = "The number of the version that services read of each secret, by environment variable; of one that is not named, 1."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for n in values(var.secret_versions) : n >= 1 && n == floor(n)])
    error_message = "A version of a secret is a whole number from 1 on."
  }
}

variable "target_urls" {
  description = "Where the targets are that enabled queues post to, by the environment variable of targets.yaml: https://host."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for url in values(var.target_urls) : can(regex("^https://[^/?#]+(/[^?#]*)?$", url))])
    error_message = "target_urls must be https://host, without query or fragment."
  }
  validation {
    condition     = join(" ", sort(keys(var.target_urls))) == join(" ", sort(local.url_variables))
    error_message = "target_urls names the targets that enabled queues post to, and no others: ${join(", ", local.url_variables)}."
  }
}

variable "queues" {
  description = "Which of the catalog's enabled queues run, by id or alias; without any, all of them. A queue whose handlers emit to another needs that one too."
  type        = list(string)
  default     = []
}

variable "kept_queues" {
  description = "Queues, by id, that no longer run and keep topic and subscriptions: what waits there waits on. Whoever switches a queue off names it here, or in discard_backlog."
  type        = list(string)
  default     = []
}

variable "discard_backlog" {
  description = <<-EOT
    Queues, by id, whose topic and subscriptions may be deleted, with every message in them. It takes two
    applies: the first takes the protection away; in the second the queue is off, or its subscription another.
  EOT
  type        = list(string)
  default     = []
}

variable "message_storage" {
  description = <<-EOT
    The regions in which Pub/Sub may store messages, without any those that the organization allows; and
    whether who publishes or reads elsewhere is refused. A region that is taken out here stays in the policies.
  EOT
  type        = object({ regions = optional(list(string), []), enforce_in_transit = optional(bool, false) })
  default     = {}

  validation {
    condition     = !var.message_storage.enforce_in_transit || contains(var.message_storage.regions, var.region)
    error_message = "With enforce_in_transit the services' region has to be one of message_storage.regions: Pub/Sub would refuse what they publish."
  }
}

variable "tasks_pool" {
  description = "The pool whose worker runs the tasks, for all pools; null is the catalog's tasks_pool. Where that does not run, and several others do, it has to be named."
  type        = string
  default     = null
}

variable "paused_queues" {
  description = "The queues, by id, that billhook queues pause has paused. A plan that would undo a pause is refused until this names the queue, and so is one whose queue is not paused."
  type        = list(string)
  default     = []

  validation {
    condition     = length(setsubtract(var.paused_queues, [for id, q in module.catalog.queues : id if q.enabled])) == 0
    error_message = "paused_queues names no queue that runs: ${join(", ", setsubtract(var.paused_queues, [for id, q in module.catalog.queues : id if q.enabled]))}."
  }
}

variable "firestore" {
  description = "The database: its id, which is the installation's name unless it says otherwise, and its location, which can never be changed."
  type        = object({ database = optional(string), location = string })

  validation {
    condition     = can(regex("^(\\(default\\)|[a-z][a-z0-9-]{2,61}[a-z0-9])$", coalesce(var.firestore.database, local.name)))
    error_message = "A database's id is (default), or 4 to 63 of a-z, 0-9 and -, begins with a letter and does not end with -: name one in firestore.database."
  }
}

variable "webhook" {
  description = <<-EOT
    The webhook service: its instances, of which it keeps one, since a payment provider's patience is shorter
    than a bad cold start; an instance's CPUs, memory, requests at once and time for one; how old or early a
    signature may be; and the domain of a load balancer in front, which closes the service's own address.
  EOT
  type = object({
    scaling           = optional(object({ min = number, max = number }), { min = 1, max = 10 })
    resources         = optional(object({ cpu = string, memory = string, cpu_idle = bool }), { cpu = "1", memory = "512Mi", cpu_idle = true })
    concurrency       = optional(number, 80)
    timeout_seconds   = optional(number, 30)
    tolerance_seconds = optional(number, 300)
    domain            = optional(string)
  })
  default = {}

  validation {
    condition     = var.webhook.timeout_seconds >= 30
    error_message = "webhook.timeout_seconds must be at least 30: below, Cloud Run would end what the program still answers."
  }
}

variable "worker" {
  description = <<-EOT
    The workers: the instances that each keeps, one where the catalog has a queue where a buyer waits
    (awaited), the catalog's min_instances (catalog) or none; and an instance's CPUs and memory, a quarter of
    which is for bodies in flight.
  EOT
  type = object({
    keeps     = optional(string, "awaited")
    resources = optional(object({ cpu = string, memory = string, cpu_idle = bool }), { cpu = "1", memory = "512Mi", cpu_idle = true })
  })
  default = {}

  validation {
    condition     = contains(["awaited", "catalog", "none"], var.worker.keeps)
    error_message = "worker.keeps is awaited, catalog or none."
  }
}

variable "vpc" {
  description = "The network that the workers' requests leave through, by direct egress, and with webhook that service's. ALL_TRAFFIC needs Private Google Access, and Cloud NAT for targets outside."
  type = object({
    network    = optional(string)
    subnetwork = optional(string)
    egress     = optional(string, "PRIVATE_RANGES_ONLY")
    tags       = optional(list(string), [])
    webhook    = optional(bool, false)
  })
  default = null
}

variable "keys" {
  description = <<-EOT
    Keys of Cloud KMS that encrypt in the place of Google's: images of services, secrets (a key of the
    location global), the database (its key can never be changed), messages. examples/around has the grants.
  EOT
  type        = object({ services = optional(string), secrets = optional(string), database = optional(string), messages = optional(string) })
  default     = {}
}

variable "alerts" {
  description = <<-EOT
    Which alerts there are beside those by default (on, or all), and which of them not (off); where they go,
    and the address of docs/runbooks; thresholds that are no queue's, what a usual day has of each source's
    webhooks, and who may read secrets, for the alert secret-access. modules/alerts has names and numbers.
  EOT
  type = object({
    on             = optional(set(string), [])
    off            = optional(set(string), [])
    channels       = optional(list(string), [])
    runbooks       = optional(string, "docs/runbooks")
    thresholds     = optional(map(number), {})
    webhooks_a_day = optional(map(number), {})
    secret_readers = optional(list(string), [])
  })
  default = {}
}

variable "labels" {
  description = "Labels of everything that can have any, beside app, which is the installation's."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether the databases, the secrets, and the topics and subscriptions that hold queues' messages, refuse to be deleted. Services hold nothing, and never refuse."
  type        = bool
  default     = true
}
