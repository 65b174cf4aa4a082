# What an owner may want around an installation, and its variables. All of it is off by default.

locals {
  optional_services = toset(concat(
    var.front == null ? [] : ["certificatemanager.googleapis.com", "compute.googleapis.com"],
    var.budget == null ? [] : ["billingbudgets.googleapis.com"],
  ))
}

resource "google_project_service" "optional" {
  for_each = local.optional_services
  project  = var.project_id
  service  = each.key
  # Others in the project may need it.
  disable_on_destroy = false
}

variable "front" {
  description = <<-EOT
    A load balancer with your own domains in front of the webhook service, with a certificate that Google
    renews, and Cloud Armor. Its records are the output front. direct leaves the service's own address
    open beside it, until the senders use the domain. rate is what one address may send; senders are
    ranges without that limit. watch names preconfigured rules that read bodies: what they match is
    logged, by log_share of the requests, and not refused.
  EOT
  type = object({
    domains   = list(string)
    direct    = optional(bool, false)
    rate      = optional(object({ requests = number, seconds = number }), { requests = 6000, seconds = 60 })
    senders   = optional(list(string), [])
    watch     = optional(list(string), [])
    log_share = optional(number, 0)
  })
  default = null
}

variable "backups" {
  description = <<-EOT
    Backups of the database, beside its point-in-time recovery of seven days: for how many days those of
    each day are kept, and for how many weeks those of one day of the week. 0 makes none.
  EOT
  type = object({
    daily_days   = optional(number, 0)
    weekly_weeks = optional(number, 0)
    weekly_on    = optional(string, "SUNDAY")
  })
  default = {}

  validation {
    condition = alltrue([for n in [var.backups.daily_days, var.backups.weekly_weeks] : n >= 0 && floor(n) == n]) && (
    var.backups.daily_days <= 98 && var.backups.weekly_weeks <= 14)
    error_message = "Firestore keeps a backup for 14 weeks at most: daily_days is 0 to 98, weekly_weeks 0 to 14, both whole."
  }
  validation {
    condition     = contains(["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"], var.backups.weekly_on)
    error_message = "weekly_on is a day in capitals, such as SUNDAY."
  }
}

variable "budget" {
  description = <<-EOT
    A budget of the project for a calendar month, on its billing account: whole units of the account's
    currency, and the shares of it that are told of. channels are e-mail channels of Cloud Monitoring;
    without any, the billing account's administrators are told.
  EOT
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string)
    shares          = optional(list(number), [0.5, 0.9, 1])
    channels        = optional(list(string), [])
  })
  default = null

  validation {
    condition     = var.budget == null || try(can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.budget.billing_account)), false)
    error_message = "budget.billing_account is written as 012345-6789AB-CDEF01."
  }
  validation {
    condition     = var.budget == null || try(var.budget.amount >= 1 && floor(var.budget.amount) == var.budget.amount && length(var.budget.shares) > 0 && alltrue([for share in var.budget.shares : share > 0]), false)
    error_message = "budget.amount must be a whole number above 0, and there must be a share, each above 0."
  }
  validation {
    condition     = length(try(var.budget.channels, [])) <= 5
    error_message = "A budget has five channels at most."
  }
}

variable "logs" {
  description = <<-EOT
    Where the services' log lines are kept, and which are not. retention_days makes a bucket of this
    installation's own; without it they go to the project's _Default alone, whose retention is everybody's.
    With instead_of_default they no longer go there too. exclude drops lines of the services everywhere, by a
    name and a filter of Cloud Logging. Alerts count what is excluded all the same.
  EOT
  type = object({
    retention_days     = optional(number)
    location           = optional(string, "global")
    instead_of_default = optional(bool, false)
    exclude            = optional(map(string), {})
  })
  default = {}

  validation {
    condition     = var.logs.retention_days == null || try(1 <= var.logs.retention_days && var.logs.retention_days <= 3650 && floor(var.logs.retention_days) == var.logs.retention_days, false)
    error_message = "retention_days must be whole days, 1 to 3650."
  }
  validation {
    condition     = var.logs.retention_days != null || !var.logs.instead_of_default
    error_message = "Without retention_days there is no bucket that lines could go to instead of _Default: they would be kept nowhere."
  }
  validation {
    condition     = alltrue([for name, filter in var.logs.exclude : can(regex("^[a-z][a-z0-9-]{0,39}$", name)) && trimspace(filter) != ""])
    error_message = "exclude has a name of a-z, 0-9 and - for each filter, and no empty filter: that would drop every line."
  }
}

variable "secret_access" {
  description = <<-EOT
    Whether reads of this installation's secrets are recorded, and told of where neither a service nor one of
    readers (e-mail addresses) made them. The record is switched on for Secret Manager in the whole
    project; with record = false somebody else has done that.
  EOT
  type = object({
    readers = optional(list(string), [])
    record  = optional(bool, true)
  })
  default = null

  validation {
    condition     = alltrue([for email in try(var.secret_access.readers, []) : can(regex("^[^@\" ]+@[^@\" ]+$", email))])
    error_message = "secret_access.readers lists e-mail addresses."
  }
}
