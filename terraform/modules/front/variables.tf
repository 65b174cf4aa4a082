variable "project_id" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the webhook service runs."
  type        = string
}

variable "name" {
  description = "The prefix of the names."
  type        = string
}

variable "service" {
  description = "The name of the webhook service on Cloud Run."
  type        = string
}

variable "domains" {
  description = "The domains that senders post to. The first is the one that is told to people."
  type        = list(string)

  validation {
    condition     = length(var.domains) > 0 && length(distinct(var.domains)) == length(var.domains)
    error_message = "There must be a domain, and none of them twice."
  }
  validation {
    condition     = alltrue([for domain in var.domains : length(domain) <= 50 && can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?[.])+[a-z]{2,}$", domain))])
    error_message = "A domain is written as hooks.example.com: in small letters, without https:// and without a path, at most 50 long."
  }
}

variable "rate" {
  description = "How many requests one address may send in how many seconds before it is answered 429."
  type        = object({ requests = number, seconds = number })

  validation {
    condition     = 1 <= var.rate.requests && var.rate.requests <= 1000000 && floor(var.rate.requests) == var.rate.requests
    error_message = "rate.requests must be a whole number, 1 to 1000000."
  }
  validation {
    condition     = contains([10, 30, 60, 120, 180, 240, 300, 600, 900, 1200, 1800, 2700, 3600], var.rate.seconds)
    error_message = "rate.seconds must be one of the intervals that Cloud Armor knows: 10, 30, 60, 120, 180, 240, 300, 600, 900, 1200, 1800, 2700 or 3600."
  }
}

variable "senders" {
  description = "The ranges of addresses that have no such limit, as 203.0.113.0/24."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for range in var.senders : can(cidrhost(range, 0)) && !contains(["0.0.0.0/0", "::/0"], range)])
    error_message = "senders are ranges such as 203.0.113.0/24, and not everybody."
  }
}

variable "watch" {
  description = "Sets of preconfigured rules that read bodies, such as sqli-v33-stable: what they match is logged, and not refused."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for set in var.watch : can(regex("^[a-z]+(-v[0-9]+)?-(stable|canary)$", set))]) && length(distinct(var.watch)) == length(var.watch)
    error_message = "watch names sets of Cloud Armor's, such as sqli-v33-stable, each once."
  }
}

variable "log_share" {
  description = "The share of requests of which the load balancer writes a line, 0 to 1."
  type        = number
  default     = 0

  validation {
    condition     = 0 <= var.log_share && var.log_share <= 1
    error_message = "log_share must be 0 to 1."
  }
  validation {
    condition     = length(var.watch) == 0 || var.log_share > 0
    error_message = "What watched rules match is seen in the log alone: give log_share, such as 1."
  }
}

variable "labels" {
  description = "Labels of what has them."
  type        = map(string)
  default     = {}
}
