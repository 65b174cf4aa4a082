variable "names" {
  description = "The installation's name, before those of the metrics made of log lines; the database's; those on Cloud Run of the webhook service and of the worker that runs the tasks; and the objective's, in full."
  type        = object({ installation = string, database = string, webhook = string, tasks_worker = string, slo = string })
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

variable "secrets" {
  description = "The ids of the secrets whose reads the alert secret-access is about, and who may read them, by e-mail address."
  type        = object({ ids = list(string), readers = list(string) })
  default     = { ids = [], readers = [] }
}

variable "asked" {
  description = <<-EOT
    What is asked for beside what is made by default, by name: on are more alerts, and metrics of log lines
    that no alert reads, all is all of them; off are alerts that are not made; thresholds stand in the place
    of local.numbers. webhooks_a_day is how many webhooks a usual day has at least, by source: of a provider
    10, of producers 1000, unless it says otherwise; 0 has no alert on silence.
  EOT
  type = object({
    on             = optional(set(string), [])
    off            = optional(set(string), [])
    thresholds     = optional(map(number), {})
    webhooks_a_day = optional(map(number), {})
  })
  default = {}

  validation {
    condition     = length(setsubtract(keys(var.asked.thresholds), keys(local.numbers))) == 0
    error_message = "thresholds has a number that no alert compares. There are ${join(", ", keys(local.numbers))}."
  }
  validation {
    condition = alltrue([
      for name, n in var.asked.thresholds :
      endswith(name, "_share") ? 0 < n && n < 1 : endswith(name, "_at_least") ? 1 <= n && n == floor(n) : (
      name == "objective" ? 0.9 <= n && n <= 0.9999 : n >= (name == "ttl_late_by" ? 86400 : 60))
    ])
    error_message = "A share is above 0 and below 1, a least number whole from 1, the objective 0.9 to 0.9999, ttl_late_by at least 86400, since TTL deletes within a day, and any other at least 60."
  }
  validation {
    condition = alltrue([
      for source, n in var.asked.webhooks_a_day :
      contains(var.sources, source) && (n == 0 || n >= 10) && n == floor(n)
    ])
    error_message = "webhooks_a_day names sources that run, each with 0, or a whole number from 10: of fewer a silence says nothing. There are ${join(", ", var.sources)}."
  }
}
