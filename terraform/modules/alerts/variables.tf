variable "name" {
  description = "The installation's name: the metrics made of log lines begin with it."
  type        = string
}

variable "database" {
  description = "The Firestore database's id."
  type        = string
}

variable "webhook" {
  description = "The webhook service's name on Cloud Run."
  type        = string
}

variable "tasks_worker" {
  description = "The name on Cloud Run of the worker that runs the tasks."
  type        = string
}

variable "scaling" {
  description = "The instances of each service, at least and at most, by its name on Cloud Run."
  type        = map(object({ min = number, max = number }))
}

variable "tasks" {
  description = "The tasks that Cloud Scheduler calls."
  type        = set(string)
}

variable "sources" {
  description = "The senders of webhooks, by name."
  type        = set(string)
}

variable "slo" {
  description = "The full name of the webhook service's objective: projects/<number>/services/<service>/serviceLevelObjectives/<id>."
  type        = string
}

variable "queues" {
  description = "The queues that run, by id, as the catalog expands them, with the names of their subscriptions in the project. Others have no alerts."
  type = map(object({
    push_subscription   = string
    oldest_alert        = string
    backlog_alert_above = number
    backlog_warn_above  = number
    max_backlog         = object({ messages = number })
    dead_letter = object({
      drop              = bool
      push_subscription = optional(string, "")
      alert_above       = optional(number, 0)
      warn_above        = optional(number, 0)
      oldest_alert      = optional(string, "0s")
      oldest_warn       = optional(string, "0s")
    })
  }))
}

variable "kept" {
  description = "The queues that are off and keep their subscription, by id: what waits there is lost when its retention ends."
  type        = map(object({ push_subscription = string, message_retention_duration = string }))
  default     = {}
}

variable "thresholds" {
  description = <<-EOT
    The numbers that are no queue's. A share is 0 to 1; what ends with _at_least is how many there must be
    before a share says anything; ages are seconds. webhooks_a_day is how many a usual day has at least, by
    source: of a provider 10, of producers 1000, unless it says otherwise; 0 has no silence told. off names
    the alerts that are not made.
  EOT
  type = object({
    off = optional(set(string), [])

    ingest_error_share     = optional(number, 0.03)
    ingest_errors_at_least = optional(number, 5)
    objective              = optional(number, 0.999)
    burnt_at_least         = optional(number, 20)

    push_failure_share     = optional(number, 0.2)
    push_failures_at_least = optional(number, 20)
    ack_deadlines_at_least = optional(number, 3)

    webhooks_a_day = optional(map(number), {})

    webhooks_refused_share    = optional(number, 0.3)
    webhooks_refused_at_least = optional(number, 4)

    ttl_late_by     = optional(number, 259200)
    outbox_oldest   = optional(number, 600)
    unsealed_oldest = optional(number, 900)
  })
  default = {}

  validation {
    condition = (
      0 < var.thresholds.push_failure_share && var.thresholds.push_failure_share < 1 &&
      0 < var.thresholds.ingest_error_share && var.thresholds.ingest_error_share < 1 &&
      0 < var.thresholds.webhooks_refused_share && var.thresholds.webhooks_refused_share < 1
    )
    error_message = "A share of failures must be above 0 and below 1."
  }
  validation {
    condition = alltrue([
      for n in [
        var.thresholds.ingest_errors_at_least, var.thresholds.burnt_at_least, var.thresholds.push_failures_at_least,
        var.thresholds.ack_deadlines_at_least, var.thresholds.webhooks_refused_at_least,
      ] : 1 <= n && n == floor(n)
    ])
    error_message = "A least number must be a whole number from 1."
  }
  validation {
    condition     = 0.9 <= var.thresholds.objective && var.thresholds.objective <= 0.9999
    error_message = "The objective must be 0.9 to 0.9999."
  }
  validation {
    condition     = alltrue([for source, n in var.thresholds.webhooks_a_day : contains(var.sources, source) && (n == 0 || n >= 10) && n == floor(n)])
    error_message = "webhooks_a_day names sources that run, each with 0, or a whole number from 10: of fewer a silence says nothing. There are ${join(", ", var.sources)}."
  }
  validation {
    condition     = 60 <= var.thresholds.outbox_oldest && 60 <= var.thresholds.unsealed_oldest && 86400 <= var.thresholds.ttl_late_by
    error_message = "outbox_oldest and unsealed_oldest must be at least 60, ttl_late_by at least 86400: TTL deletes within a day."
  }
}

variable "more" {
  description = "Policies of other modules, by name, in the form of the output policies."
  type = map(object({
    runbook  = string
    severity = string
    combiner = string
    about    = string
    conditions = list(object({
      name       = string
      filter     = string
      comparison = string
      threshold  = number
      duration   = string
      missing    = string
      period     = string
      align      = string
      reduce     = string
      by         = list(string)
      share_of   = string
    }))
  }))
  default = {}
}
