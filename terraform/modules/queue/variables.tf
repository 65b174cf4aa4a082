variable "project_id" {
  description = "The project's id."
  type        = string
}

variable "queue" {
  description = "The queue, as the catalog module expands it."
  type = object({
    id                         = string
    enabled                    = bool
    topic                      = string
    shared                     = bool
    push_subscription          = string
    push_path                  = string
    filter                     = string
    enable_message_ordering    = bool
    ack_deadline_seconds       = number
    handler_timeout            = string
    message_retention_duration = string
    broker = object({
      minimum_backoff       = string
      maximum_backoff       = string
      max_delivery_attempts = number
    })
    dead_letter = object({
      drop              = bool
      topic             = optional(string)
      retention         = optional(string)
      hold_subscription = optional(string)
      push_subscription = optional(string)
      push_path         = optional(string)
    })
  })

  validation {
    condition     = var.queue.enabled != var.kept
    error_message = "A queue that is not enabled has nothing here, unless it is kept: a message to a topic without a reader is lost without a trace."
  }
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,254}$", var.queue.topic)) && !startswith(var.queue.topic, "goog")
    error_message = "A topic is 3 to 255 of a-z, 0-9 and -, begins with a letter, and not with goog."
  }
  validation {
    condition     = var.queue.dead_letter.drop || try(can(regex("^[a-z][a-z0-9-]{2,254}$", var.queue.dead_letter.topic)) && !startswith(var.queue.dead_letter.topic, "goog"), false)
    error_message = "A dead-letter topic is 3 to 255 of a-z, 0-9 and -, begins with a letter, and not with goog."
  }
  validation {
    condition     = alltrue([for name in [var.queue.push_subscription, try(var.queue.dead_letter.hold_subscription, null), try(var.queue.dead_letter.push_subscription, null)] : length(name) <= 255 if name != null])
    error_message = "A subscription's name has at most 255 characters, with the installation's before it."
  }
  validation {
    condition     = 10 <= var.queue.ack_deadline_seconds && var.queue.ack_deadline_seconds <= 600
    error_message = "ack_deadline_seconds must be 10 to 600."
  }
  validation {
    condition     = try(tonumber(trimsuffix(var.queue.handler_timeout, "s")) < var.queue.ack_deadline_seconds, false)
    error_message = "The handler's deadline must be below the ack deadline: a message that is handled too late is delivered again."
  }
  validation {
    condition     = 5 <= var.queue.broker.max_delivery_attempts && var.queue.broker.max_delivery_attempts <= 100
    error_message = "max_delivery_attempts must be 5 to 100."
  }
  validation {
    condition = try(
      0 <= tonumber(trimsuffix(var.queue.broker.minimum_backoff, "s")) &&
      tonumber(trimsuffix(var.queue.broker.minimum_backoff, "s")) <= tonumber(trimsuffix(var.queue.broker.maximum_backoff, "s")) &&
    tonumber(trimsuffix(var.queue.broker.maximum_backoff, "s")) <= 600, false)
    error_message = "The backoff must go from at least 0s to at most 600s."
  }
  validation {
    condition     = length(var.queue.filter) <= 256
    error_message = "A filter has at most 256 characters."
  }
}

variable "shared_topic" {
  description = "The id of the topic that the queue shares, as Google has it, and grants on it are made where it is; null where the queue has its own."
  type        = string
  default     = null
}

variable "push_base_url" {
  description = "The worker's address, https://host without a path; null where a queue is kept and its pool has no worker."
  type        = string

  validation {
    condition     = var.kept || can(regex("^https?://[^/?#]+$", var.push_base_url))
    error_message = "The push base URL must be http(s)://host, without a path."
  }
}

variable "identity" {
  description = <<-EOT
    The account and the audience of a push's token, and Pub/Sub's own service agent, which
    forwards messages that no worker answers. Null on an emulator, which has no IAM. Nothing is
    pushed to a queue that is kept, and its pool may have no account.
  EOT
  type = object({
    service_account = optional(string)
    audience        = string
    agent           = string
  })
  default = null

  validation {
    condition = var.identity == null || try(
      length(var.identity.audience) > 0 && (var.kept || can(regex("@", var.identity.service_account))) && startswith(var.identity.agent, "serviceAccount:"), false
    )
    error_message = "An identity has an account's e-mail address, a non-empty audience, and the agent as serviceAccount:<e-mail>."
  }
}

variable "paused" {
  description = "Whether billhook queues pause has paused the queue: its subscription then keeps having no endpoint."
  type        = bool
  default     = false
}

variable "kept" {
  description = "Whether the queue is off and keeps its topic and subscriptions, without an endpoint."
  type        = bool
  default     = false
}

variable "protected" {
  description = "Whether Terraform refuses to delete the queue's topics and subscriptions, with the messages in them, also where the queue is no longer in the configuration."
  type        = bool
  default     = true
}

variable "message_storage" {
  description = "The regions in which messages may be stored, whether they may pass through these alone, and the key that encrypts them. Without regions, and with a key of null, Pub/Sub chooses."
  type = object({
    regions            = optional(list(string), [])
    enforce_in_transit = optional(bool, false)
    kms_key            = optional(string)
  })
  default = {}
}

variable "publishers" {
  description = "The topic's publishers: IAM members under names that are known at plan time."
  type        = map(string)
  default     = {}
}

variable "dead_letter_publishers" {
  description = "The dead-letter topic's publishers besides Pub/Sub's own agent: IAM members."
  type        = map(string)
  default     = {}
}

variable "emulator" {
  description = <<-EOT
    Avoids the faults of Google's emulator: a dead-letter policy on an ordered subscription
    ends its pushes for good, a retry policy on an unordered one loses messages, and retention
    ends at 7 days.
  EOT
  type        = bool
  default     = false
}

variable "labels" {
  description = "Labels of topics and subscriptions."
  type        = map(string)
  default     = {}
}

variable "catalog_hash" {
  description = "The hash of the catalog that the queue is of, for a label of its push subscription; empty: there is no label."
  type        = string
  default     = ""
}
